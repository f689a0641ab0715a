"""The names that Temporal knows: workflow ids, task queues, signals, search attributes."""

from enum import StrEnum
from typing import Final

from towline.domain.lifecycle import Status

CONTROL_QUEUE: Final = "towline-control"


class Signal(StrEnum):
    """Signals of the session workflow."""

    CANCEL = "cancel"
    FORCE_CANCEL = "force_cancel"
    TERMINATE = "terminate"
    CONTAINER_EXITED = "container_exited"
    PULL_STARTED = "pull_started"
    PULL_VERDICT = "pull_verdict"
    CAPACITY_FREED = "capacity_freed"
    AGENT_LEAVE = "agent_leave"
    AGENT_STAY = "agent_stay"


class AgentSignal(StrEnum):
    """Signals of the agent workflow."""

    HELLO = "hello"
    ENGINE_DOWN = "engine_down"
    DRAIN = "drain"
    UNCORDON = "uncordon"


CLAIM: Final = "claim"
"""The agent workflow's update: a worker wants to serve the agent."""


class SearchAttribute(StrEnum):
    """Search attributes by name. All are Keyword, but `AGENTS`, which is a KeywordList."""

    STATUS = "TowlineStatus"
    OWNER = "TowlineOwner"
    IMAGE = "TowlineImage"
    AGENTS = "TowlineAgents"
    VERDICT = "TowlineVerdict"


class WorkflowName(StrEnum):
    """Registered workflow types."""

    SESSION = "Session"
    KERNEL_START = "KernelStart"
    AGENT = "Agent"


class ActivityName(StrEnum):
    """Registered activity types. The first group runs in the control worker, the others on an agent."""

    PLACE = "place"
    ADMIT = "admit"
    RECORD = "record"
    FINISH = "finish"
    RECORD_AGENT = "record_agent"

    CHECK_IMAGE = "check_image"
    CHECK_AND_PULL = "check_and_pull"

    START_CONTAINER = "start_container"
    END_CONTAINER = "end_container"
    READ_LOGS = "read_logs"
    ATTEND = "attend"


def pull_queue(agent_id: str) -> str:
    """Task queue of an agent's long pulls."""
    return f"towline-agent/{agent_id}/pull"


def container_queue(agent_id: str) -> str:
    """Task queue of an agent's short work: image checks, containers, logs."""
    return f"towline-agent/{agent_id}/container"


def session_workflow_id(session_id: str) -> str:
    """Workflow id of a session's life."""
    return f"session/{session_id}"


def kernel_start_workflow_id(session_id: str, kernel: int, placement: int = 1) -> str:
    """Workflow id of the child that starts one kernel: from the session's id, so that code changes never move it. A session
    that was placed anew has others: a former child may still be waiting for its lost agent."""
    anew = f"/{placement}" if placement > 1 else ""
    return f"session/{session_id}/kernel/{kernel}/start{anew}"


OPEN_SESSIONS: Final = f"WorkflowType = '{WorkflowName.SESSION}' AND ExecutionStatus = 'Running'"
"""Visibility query: the sessions whose workflow is open."""


def running_on(agent_id: str) -> str:
    """Visibility query: the open sessions that run and have a kernel on the agent."""
    on_agent = f"{SearchAttribute.AGENTS} = '{agent_id}' AND {SearchAttribute.STATUS} = '{Status.RUNNING}'"
    return f"{OPEN_SESSIONS} AND {on_agent}"


def agent_workflow_id(agent_id: str) -> str:
    """Workflow id of an agent's presence."""
    return f"agent/{agent_id}"


def session_id_of(workflow_id: str) -> str:
    """The session id in `session/<id>` or in a child's id. Raises `ValueError` for another workflow's id."""
    prefix, _, rest = workflow_id.partition("/")
    session_id = rest.partition("/")[0]
    if prefix != "session" or not session_id:
        raise ValueError(f"not a session's workflow id: {workflow_id}")
    return session_id
