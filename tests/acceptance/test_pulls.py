"""Shared pulls and background pulls on the real stack."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import docker
import pytest

from tests.acceptance.stack import RunningStack, after_seconds
from tests.rig.eventually import eventually_sync
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.registry import RegistryProcess

pytestmark = pytest.mark.usefixtures("no_leftovers")


def absent_image(registry: RegistryProcess, name: str, *, mb: int = 12) -> PushedImage:
    layers = (Layer.busybox(), Layer.random(mb=mb, seed=sum(name.encode())))
    return push(registry.host, f"acceptance/{name}", "1", ImageRecipe(layers=layers, cmd=("sleep", "300")))


def test_fifty_sessions_share_one_pull_and_the_last_one_out_stops_it(
    stack: RunningStack, registry: RegistryProcess
) -> None:
    pushed = absent_image(registry, "shared", mb=30)
    with FaultRegistry(registry.host) as slow, ThreadPoolExecutor(16) as pool:
        slow.on(Throttle(total_bytes_per_second=250_000), path="*/blobs/*")
        image = pushed.reference.replace(registry.host, slow.host)
        resources = {"cpu": 0.01, "memory": "8m"}
        sessions = list(pool.map(lambda _: stack.create(image, resources=resources), range(50)))

        def one_pull_of_all() -> dict[str, Any]:
            pull = _only_pull(stack)
            assert len(pull["waits"]) == 50
            return pull

        pull = eventually_sync(one_pull_of_all, timeout=60)
        eventually_sync(lambda: _waiters(stack, pull["id"]) == 50, timeout=60)
        list(pool.map(lambda session: stack.cancel(session, force=True), sessions[:49]))
        eventually_sync(lambda: _waiters(stack, pull["id"]) == 1, timeout=60)
        before = slow.body_bytes
        eventually_sync(lambda: slow.body_bytes > before, timeout=10)
        large = max(pushed.layers, key=lambda layer: layer[1])[0]
        assert len(slow.stats().of(method="GET", digest=large)) == 1
        stack.cancel(sessions[49], force=True)
        eventually_sync(lambda: _outcome(stack, pull["id"]) == "aborted", timeout=20)
        after_seconds(2)
        before = slow.body_bytes
        after_seconds(0.7)
        assert slow.body_bytes == before


def _only_pull(stack: RunningStack) -> dict[str, Any]:
    """The one pull in flight."""
    pulls = stack.api.get("/v1/pulls?outcome=running").json()["pulls"]
    assert len(pulls) == 1, pulls
    pull: dict[str, Any] = pulls[0]
    return pull


def _waiters(stack: RunningStack, pull_id: str) -> int:
    progress = stack.api.get(f"/v1/pulls/{pull_id}").json()["progress"]
    return 0 if progress is None else int(progress["waiters"])


def _outcome(stack: RunningStack, pull_id: str) -> str:
    return str(stack.api.get(f"/v1/pulls/{pull_id}").json()["outcome"])


def test_an_admin_cancels_a_pull_for_all_who_wait(stack: RunningStack, registry: RegistryProcess) -> None:
    pushed = absent_image(registry, "cancelled")
    with FaultRegistry(registry.host) as slow:
        slow.on(Throttle(total_bytes_per_second=1_000_000), path="*/blobs/*")
        image = pushed.reference.replace(registry.host, slow.host)
        sessions = [stack.create(image) for _ in range(3)]
        for session in sessions:
            stack.reaches(session, "PULLING")
        pull = eventually_sync(lambda: _only_pull(stack), timeout=10)
        done = stack.cli("pull", "cancel", pull["id"], "--why", "the wrong one")
        assert done.returncode == 0, done.stderr
        for session in sessions:
            view = stack.ended(session)
            assert view["status"] == "CANCELLED"
            assert "the wrong one" in view["ended_why"]
        eventually_sync(lambda: _outcome(stack, pull["id"]) == "aborted", timeout=10)


def test_check_and_pull_in_the_background(
    stack: RunningStack, registry: RegistryProcess, docker_client: docker.DockerClient
) -> None:
    pushed = absent_image(registry, "background", mb=4)
    with FaultRegistry(registry.host) as slow:
        slow.on(Throttle(total_bytes_per_second=2_000_000), path="*/blobs/*")
        image = pushed.reference.replace(registry.host, slow.host)
        body = {"agents": ["local"], "image": image}
        first = stack.api.post("/v1/images/check-and-pull", json=body)
        again = stack.api.post("/v1/images/check-and-pull", json=body)
        assert (first.status_code, first.json()) == (202, again.json())
        [task_id] = first.json()["task_ids"]

        def task() -> dict[str, Any]:
            found: dict[str, Any] = stack.api.get(f"/v1/tasks/{task_id}").json()
            return found

        eventually_sync(lambda: (task()["progress"] or {}).get("bytes_done", 0) > 0, timeout=20)
        eventually_sync(lambda: task()["status"] == "finished", timeout=30)
        assert task()["image"]["digest"] == pushed.manifest_digest
        assert docker_client.images.get(image)
        nope = image.rpartition(":")[0] + ":nope"
        [failing] = stack.api.post("/v1/images/check-and-pull", json={"agents": ["local"], "image": nope}).json()[
            "task_ids"
        ]
        eventually_sync(lambda: stack.api.get(f"/v1/tasks/{failing}").json()["status"] == "failed", timeout=20)
        assert stack.api.get(f"/v1/tasks/{failing}").json()["failure"]["reason"] == "image-not-found"
    docker_client.images.remove(image)
