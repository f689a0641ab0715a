"""A quota on the real stack: any number may pull beyond it, and no more run than it allows."""

import pytest

from tests.acceptance.stack import RunningStack
from tests.acceptance.test_pulls import absent_image
from tests.rig.eventually import eventually_sync
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.registry import RegistryProcess

pytestmark = pytest.mark.usefixtures("no_leftovers")
ALLOWED = 2
RUNNING = {"CREATING", "RUNNING", "TERMINATING"}


def test_beyond_a_quota_sessions_pull_and_do_not_run(stack: RunningStack, registry: RegistryProcess) -> None:
    pushed = absent_image(registry, "quota", mb=4)
    done = stack.cli("quota", "set", "user", "*", f"--sessions={ALLOWED}")
    assert done.returncode == 0, done.stderr
    try:
        with FaultRegistry(registry.host) as slow:
            slow.on(Throttle(total_bytes_per_second=1_500_000), path="*/blobs/*")
            image = pushed.reference.replace(registry.host, slow.host)
            # More than so many that run at once last: some must be seen to wait.
            sessions = [stack.create(image, "sleep", "1") for _ in range(6)]
            for session in sessions:
                stack.reaches(session, "PULLING")
            most, reasons = _watch_to_the_end(stack, [session["id"] for session in sessions])
        assert most == ALLOWED
        assert reasons == {"quota"}
        assert {stack.show(session)["exit_code"] for session in sessions} == {0}
    finally:
        assert stack.cli("quota", "unset", "user", "*").returncode == 0


def _watch_to_the_end(stack: RunningStack, ids: list[str]) -> tuple[int, set[str]]:
    """The most that ran at one time, and the reasons with which the others were seen to wait in PREPARED."""
    most, reasons = 0, set[str]()

    def look() -> bool:
        nonlocal most
        views = [view for view in stack.api.get("/v1/sessions?limit=200").json()["sessions"] if view["id"] in ids]
        most = max(most, sum(view["status"] in RUNNING for view in views))
        reasons.update(view["reason"] for view in views if view["status"] == "PREPARED" and view["reason"])
        return all(view["status"] == "TERMINATED" for view in views)

    eventually_sync(look, timeout=90)
    return most, reasons
