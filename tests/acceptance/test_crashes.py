"""kill -9 of a part in mid-pull: once it is back, the session runs, with one container."""

from collections.abc import Callable

import docker
import httpx
import pytest

from tests.acceptance.stack import RunningStack
from tests.rig.eventually import eventually_sync
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, push
from tests.rig.registry import RegistryProcess

pytestmark = pytest.mark.usefixtures("no_leftovers")


@pytest.mark.parametrize("part", ["agent-local", "control", "api"])
def test_a_killed_part_costs_the_session_nothing(
    stack: RunningStack, registry: RegistryProcess, docker_client: docker.DockerClient, part: str
) -> None:
    layers = (Layer.busybox(), Layer.random(mb=9, seed=sum(part.encode())))
    pushed = push(registry.host, f"acceptance/crash-{part}", "1", ImageRecipe(layers=layers, cmd=("sleep", "300")))
    with FaultRegistry(registry.host) as slow:
        slow.on(Throttle(total_bytes_per_second=3_000_000), path="*/blobs/*")
        session = stack.create(pushed.reference.replace(registry.host, slow.host))
        stack.reaches(session, "PULLING")
        dead = stack.kill(part)

        def is_back() -> None:
            assert stack.pid(part) != dead
            assert stack.api.get("/healthz").status_code == 200

        eventually_sync(_quietly(is_back), timeout=60)
        stack.reaches(session, "RUNNING", timeout_seconds=90)
    [container] = docker_client.api.containers(all=True)
    assert container["Labels"]["io.towline.session"] == session["id"]
    stack.cancel(session)
    assert stack.ended(session)["status"] == "TERMINATED"


def _quietly(check: Callable[[], None]) -> Callable[[], None]:
    """A connection that is refused means: not yet."""

    def checked() -> None:
        try:
            check()
        except httpx.HTTPError as error:
            raise AssertionError(str(error)) from error

    return checked
