"""Sessions that wait for a time, and for one another, on the real stack."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.acceptance.stack import RunningStack
from tests.rig.images import PushedImage

pytestmark = pytest.mark.usefixtures("no_leftovers")


def _started_at(view: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(view["kernels"][0]["started_at"])


def test_a_chain_runs_in_order_and_a_failure_ends_what_comes_after(stack: RunningStack, small: PushedImage) -> None:
    first = stack.create(small.reference, "sleep", "1")
    second = stack.create(small.reference, "false", depends_on=[first["id"]])
    third = stack.create(small.reference, "true", depends_on=[first["id"], second["id"]])
    fourth = stack.create(small.reference, "true", depends_on=[third["id"]])
    waiting = stack.reaches(second, "PENDING")
    assert (waiting["reason"], waiting["kernels"][0]["agent_id"]) == ("dependency", None)
    ended = [stack.ended(session) for session in (first, second, third, fourth)]
    assert [(one["status"], one["reason"]) for one in ended] == [
        ("TERMINATED", "exited"),
        ("TERMINATED", "exited"),
        ("ERROR", "dependency-failed"),
        ("ERROR", "dependency-failed"),
    ]
    assert _started_at(ended[1]) >= datetime.fromisoformat(ended[0]["kernels"][0]["ended_at"])
    assert ended[2]["message"].endswith(f"session {second['id']} ended with exit code 1")
    assert third["id"] in ended[3]["message"]


def test_a_session_does_not_start_before_its_time(stack: RunningStack, small: PushedImage) -> None:
    at = datetime.now(UTC) + timedelta(seconds=3)
    done = stack.cli("run", "--network=none", "--memory=16m", f"--starts-at={at.isoformat()}", small.reference, "true")
    assert done.returncode == 0, done.stderr
    [view] = stack.api.get("/v1/sessions?limit=1").json()["sessions"]
    assert timedelta() <= _started_at(view) - at < timedelta(seconds=30)
    assert "starts no earlier than" in done.stderr
