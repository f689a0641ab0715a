"""Force-cancel in PULLING: seen at once, the bytes stop, nothing starts later. Twenty times, at random moments."""

import random
import time

import docker
import pytest

from tests.acceptance.stack import RunningStack, after_seconds
from tests.rig.faults import FaultRegistry, Stall, Throttle
from tests.rig.images import ImageRecipe, Layer, push
from tests.rig.registry import RegistryProcess

pytestmark = pytest.mark.usefixtures("no_leftovers")
_SEEN_SECONDS = 1.0
_STILL_SECONDS = 2.0


@pytest.mark.parametrize("round_", range(20))
def test_force_cancel_in_pulling(
    stack: RunningStack, registry: RegistryProcess, docker_client: docker.DockerClient, round_: int
) -> None:
    chance = random.Random(round_)
    layers = (Layer.busybox(), Layer.random(mb=6, seed=71), Layer.random(mb=9, seed=72))
    pushed = push(registry.host, "acceptance/force", "1", ImageRecipe(layers=layers, cmd=("sleep", "60")))
    with FaultRegistry(registry.host) as slow:
        if round_ % 4 == 3:
            slow.on(Stall(after_bytes=chance.randrange(1, 4_000_000)), path="*/blobs/*", method="GET")
        slow.on(Throttle(total_bytes_per_second=3_000_000), path="*/blobs/*")
        session = stack.create(pushed.reference.replace(registry.host, slow.host))
        stack.reaches(session, "PULLING")
        after_seconds(chance.uniform(0, 2.5))
        asked_at = time.monotonic()
        stack.cancel(session, force=True)
        view = stack.reaches(session, "CANCELLED", timeout_seconds=_SEEN_SECONDS)
        assert time.monotonic() - asked_at < _SEEN_SECONDS + 0.2
        assert (view["reason"], view["ended_by"], view["ended_why"]) == ("cancelled-by-user", "admin", "a test")
        after_seconds(max(0.0, asked_at + _STILL_SECONDS - time.monotonic()))
        before = slow.body_bytes
        after_seconds(0.7)
        assert slow.body_bytes == before
    assert docker_client.api.containers(all=True) == []
    stack.holds_nothing()
    assert stack.show(session)["status"] == "CANCELLED"
