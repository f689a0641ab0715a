"""One real stack on one real engine for all acceptance tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.acceptance.stack import RunningStack, running_stack
from tests.rig.engines import Engine
from tests.rig.eventually import eventually_sync
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.registry import RegistryProcess


@pytest.fixture(scope="session")
def stack(classic_engine: Engine) -> Iterator[RunningStack]:
    """The stack, in a directory whose path is short enough for sockets, and which PostgreSQL's account can reach: pytest
    closes its own directories to others, each time that it starts."""
    with tempfile.TemporaryDirectory(prefix="tl-stack-") as directory:
        Path(directory).chmod(0o755)
        with running_stack(Path(directory), classic_engine.url) as running:
            yield running


@pytest.fixture(scope="session")
def docker_client(classic_engine: Engine) -> docker.DockerClient:
    """The engine, seen past Towline."""
    return classic_engine.client()


@pytest.fixture(scope="session")
def small(registry: RegistryProcess, docker_client: docker.DockerClient) -> PushedImage:
    """A small image, present on the engine."""
    pushed = push(registry.host, "acceptance/small", "1", ImageRecipe(layers=(Layer.busybox(),), cmd=("sh",)))
    docker_client.images.pull(pushed.reference)
    return pushed


@pytest.fixture
def no_leftovers(stack: RunningStack, docker_client: docker.DockerClient) -> Iterator[None]:
    """After the test the engine has no container of ours, and nobody holds capacity. What a failed test has left is ended, so
    that it does not fail the next one."""
    networks = {network["Name"] for network in docker_client.api.networks()}
    yield

    def clean() -> None:
        assert docker_client.api.containers(all=True) == []
        assert {network["Name"] for network in docker_client.api.networks()} == networks
        stack.holds_nothing()

    try:
        eventually_sync(clean, timeout=30)
    except AssertionError:
        stack.end_all()
        eventually_sync(clean, timeout=60)
        raise
