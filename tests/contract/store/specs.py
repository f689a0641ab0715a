"""What the tests of the store ask for."""

import itertools
from typing import Any, Final

from towline.domain.agents import AgentFacts, RecordAgent
from towline.domain.ids import new_session_id
from towline.domain.lifecycle import Reason, Status, Transition
from towline.domain.records import Finish, Record
from towline.domain.sessions import Resources, SessionSpec

OWNER: Final = "usr-ann"
GIB: Final = 1 << 30
S = Status


def spec(*, cpu: float = 1.0, gib: int = 1, **fields: Any) -> SessionSpec:
    """A session of ann's."""
    values = {"owner_id": OWNER, "owner": "ann", "image": "docker.io/library/busybox:latest"} | fields
    return SessionSpec(session_id=new_session_id(), resources=Resources(cpu=cpu, memory_bytes=gib * GIB), **values)


def online(agent_id: str = "a1", *, cpu: float = 4.0, gib: int = 8, **fields: Any) -> RecordAgent:
    """An agent that says hello."""
    facts = AgentFacts(agent_id=agent_id, boot_id="boot", cpu=cpu, memory_bytes=gib * GIB, **fields)
    return RecordAgent(facts=facts)


def steps(*path: Status, kernel: int = 0) -> tuple[Transition, ...]:
    """The steps along a path."""
    return tuple(Transition(kernel=kernel, from_status=a, to_status=b) for a, b in itertools.pairwise(path))


def running(session_id: str, *, kernels: int = 1) -> Record:
    """From PREPARING to RUNNING."""
    path = (S.PREPARING, S.PREPARED, S.CREATING, S.RUNNING)
    taken = [step for kernel in range(kernels) for step in steps(*path, kernel=kernel)]
    return Record(session_id=session_id, transitions=tuple(taken))


def end(
    session_id: str,
    from_: Status,
    to: Status,
    *,
    kernels: int = 1,
    reason: Reason = Reason.EXITED,
    **fields: Any,
) -> Finish:
    """The end of every kernel."""
    taken = tuple(
        Transition(kernel=kernel, from_status=from_, to_status=to, reason=reason) for kernel in range(kernels)
    )
    return Finish(session_id=session_id, transitions=taken, reason=reason, **fields)
