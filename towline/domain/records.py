"""What is asked of the records, and what they answer."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import Reason, Transition
from towline.domain.pulling import PullWait
from towline.domain.sessions import Actor


@dataclass(frozen=True, kw_only=True)
class Place:
    """Reserve capacity for every kernel of the session, all or none, and record PENDING → SCHEDULED → PREPARING. `woken`: it asks
    because it was told that there is room."""

    session_id: str
    woken: bool = False


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Agent ids by kernel index; empty: not now (`reason`, `message` say why), or never where `never` is set.

    Asking again after a success answers the same placement. `ask_at`: before then the answer will be the same. `woken`: who may
    get on now, because room that was counted on for this session, and that it does not need or cannot use, is so no more.
    """

    agents: tuple[str, ...] = ()
    never: bool = False
    reason: Reason | None = None
    message: str = ""
    ask_at: datetime | None = None
    woken: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KernelFacts:
    """What became known of a kernel; None leaves the stored value."""

    kernel: int
    digest: str | None = None
    stale: bool | None = None
    container_id: str | None = None
    started_at: datetime | None = None
    ports: dict[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, kw_only=True)
class Note:
    """An event that is not a transition: a verdict, an attempt. `key` is unique in the session: noting twice stores once."""

    key: str
    kind: str
    message: str
    kernel: int | None = None


WAITS: Final = "waits"
"""The kind of the event that says why a session is not getting on."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Transitions, in order, with the facts and notes that belong to them. A step whose `from` is no longer so is dropped. What
    a kernel held that is to be placed anew is freed in the same transaction."""

    session_id: str
    transitions: tuple[Transition, ...] = ()
    facts: tuple[KernelFacts, ...] = ()
    notes: tuple[Note, ...] = ()
    pulls: tuple[PullWait, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Admit:
    """Write `record`, and then PREPARED → CREATING for all kernels, if the quotas of the session's owner have room for it.
    `woken`: it asks because it was told that there is room."""

    record: Record
    woken: bool = False


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Whether the kernels may be created now; if not, `message` says what there is no room in. Asking again after a success
    answers the same. `woken`: who may get on now, because this session cannot."""

    admitted: bool
    message: str = ""
    woken: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The final transitions, the ends of the containers, and the freeing of what the session held: one transaction.

    `reason` and `message` are the session's own; the first Finish that reaches a final status wins, a later one only adds
    exits and logs that were not known yet.
    """

    session_id: str
    transitions: tuple[Transition, ...] = ()
    reason: Reason
    message: str = ""
    exits: tuple[ContainerExit, ...] = ()
    actor: Actor | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Freed:
    """`woken`: sessions waiting for capacity, for their quota or for the one that has ended, in the order in which they shall
    try again."""

    woken: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Abandon:
    """The end of a session whose workflow is gone: ERROR, `workflow-lost`, for every kernel that has not ended."""

    session_id: str
    message: str
