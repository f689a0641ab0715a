"""Real registries and engines for every kind of test. The servers live for the whole run; what is put in front of them, for one test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.rig.engines import Engine, classic_engine, containerd_engine
from tests.rig.faults import FaultRegistry
from tests.rig.registry import RegistryProcess


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    """A registry without credentials. Tests push into repositories of their own names."""
    with RegistryProcess(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def fault_registry(registry: RegistryProcess) -> Iterator[Callable[[], FaultRegistry]]:
    """Makes fault registries in front of the registry, each started, and stopped after the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(FaultRegistry(registry.host))


@pytest.fixture(name="classic_engine", scope="session")
def _classic_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """dockerd with the classic store, shared: tests use images and names of their own and remove their containers."""
    with classic_engine(tmp_path_factory.mktemp("classic")) as engine:
        yield engine


@pytest.fixture(name="containerd_engine", scope="session")
def _containerd_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """dockerd with the containerd store, shared in the same way."""
    with containerd_engine(tmp_path_factory.mktemp("containerd")) as engine:
        yield engine
