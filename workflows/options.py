"""Every time-out and retry of the workflows, named once."""

from datetime import timedelta
from typing import Any, Final

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

AGENT_PATIENCE: Final = timedelta(minutes=15)
"""How long work waits for an agent that does not fetch it, before the session fails with `agent-unreachable`."""

PULL_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)
ATTEND_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)
START_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)
CLAIM_PATIENCE: Final = ATTEND_HEARTBEAT_TIMEOUT + timedelta(seconds=5)
"""By then a worker that is dead has missed a heartbeat."""

PLACEMENTS_MAX: Final = 5
"""So often is a session placed, when its agents are lost before it runs."""

CAPACITY_RECHECK: Final = timedelta(minutes=2)
"""A waiting session is woken when capacity is freed; this is the reconciliation behind that."""

_QUICK: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=5))

RECORDS: Final[dict[str, Any]] = {
    # A record is retried for ever: the workflow has decided, and the database is only where it is written down.
    "start_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5)),
}

CHECK: Final[dict[str, Any]] = {
    "schedule_to_close_timeout": AGENT_PATIENCE,
    "start_to_close_timeout": timedelta(seconds=60),
    "retry_policy": _QUICK,
}

PULL: Final[dict[str, Any]] = {
    # No clock cuts a healthy pull: the agent judges it by its bytes and by the session's own deadline. The heartbeat tells
    # whether the agent lives; a worker that died is replaced by whoever fetches the task next.
    "schedule_to_start_timeout": AGENT_PATIENCE,
    "start_to_close_timeout": timedelta(days=7),
    "heartbeat_timeout": PULL_HEARTBEAT_TIMEOUT,
    "retry_policy": _QUICK,
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}

TASK: Final[dict[str, Any]] = {name: value for name, value in PULL.items() if name != "cancellation_type"}
"""A check-and-pull on its own: as for a session, without a workflow that could wait for its cancellation."""

START: Final[dict[str, Any]] = {
    # Image checks and starts share a queue and the engine's own limits: a burst waits, it does not fail.
    "schedule_to_close_timeout": AGENT_PATIENCE,
    "start_to_close_timeout": timedelta(minutes=5),
    "heartbeat_timeout": START_HEARTBEAT_TIMEOUT,
    "retry_policy": _QUICK,
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}

ATTEND: Final[dict[str, Any]] = {
    "start_to_close_timeout": timedelta(days=1),
    "heartbeat_timeout": ATTEND_HEARTBEAT_TIMEOUT,
    "retry_policy": RetryPolicy(maximum_attempts=1),
    "cancellation_type": ActivityCancellationType.TRY_CANCEL,
}


def ending(grace_seconds: float) -> dict[str, Any]:
    """Stopping and removing a container: tried until the container is gone, also when the agent is away for days."""
    return {
        "start_to_close_timeout": timedelta(seconds=grace_seconds) + timedelta(minutes=2),
        "retry_policy": RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)),
    }
