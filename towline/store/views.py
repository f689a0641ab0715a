"""What the records show: plain values, apart from rows and from what goes over the wire."""

from dataclasses import dataclass
from datetime import datetime

from towline.domain.agents import AgentEvent, AgentStatus
from towline.domain.lifecycle import Reason, Status
from towline.domain.pulling import PullOutcome, WaitOutcome
from towline.domain.sessions import SessionSpec


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """One kernel as recorded."""

    index: int
    status: Status
    reason: Reason | None
    message: str
    agent_id: str | None
    digest: str | None
    stale: bool
    container_id: str | None
    exit_code: int | None
    oom_killed: bool
    ports: dict[str, list[int]]
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class SessionView:
    """One session as recorded. `last_event` is the number of its newest event, 0 where there is none yet."""

    spec: SessionSpec
    status: Status
    reason: Reason | None
    message: str
    ended_by: str | None
    ended_why: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    dispatched: bool
    last_event: int
    kernels: tuple[KernelView, ...]


@dataclass(frozen=True, kw_only=True)
class EventView:
    """One event of a session. `session_status`: the session's status after it."""

    seq: int
    at: datetime
    kind: str
    kernel: int | None
    from_status: Status | None
    to_status: Status | None
    session_status: Status
    reason: Reason | None
    message: str
    actor: str | None


@dataclass(frozen=True, kw_only=True)
class LogTailView:
    """The kept tail of a kernel's log. `data` None: nothing is kept (the kernel has not ended, or never ran)."""

    data: bytes | None
    total_bytes: int
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class PullWaitView:
    """A session's wait for a pull."""

    session_id: str
    outcome: WaitOutcome
    joined_at: datetime
    left_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class PullView:
    """A pull with who waited for it; `other_waiters` counts those that are not the reader's to see."""

    id: str
    agent_id: str
    image: str
    digest: str | None
    outcome: PullOutcome
    reason: Reason | None
    message: str
    bytes_pulled: int
    bytes_present: int
    retried_bytes: int
    attempts: int
    started_at: datetime
    ended_at: datetime | None
    waits: tuple[PullWaitView, ...]
    other_waiters: int


@dataclass(frozen=True, kw_only=True)
class UserView:
    """A user. `role` is `superadmin` or `user`."""

    id: str
    name: str
    role: str
    project: str | None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class TokenView:
    """A token, without what it is made of."""

    id: str
    user: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""


@dataclass(frozen=True, kw_only=True)
class AgentEventView:
    """What happened to an agent, or was done to it by `actor`."""

    at: datetime
    kind: AgentEvent
    message: str
    actor: str | None


@dataclass(frozen=True, kw_only=True)
class AgentView:
    """An agent with its capacity and what is free of it (cores, bytes, GPUs). `message`: why it is not ONLINE.

    `drain_deadline`: when sessions that still run there are ended. `events`: the newest first, where one agent is asked for.
    """

    id: str
    status: AgentStatus
    message: str
    cordoned: bool
    draining: bool
    drain_deadline: datetime | None
    cpu: float
    memory_bytes: int
    gpu: int
    cpu_free: float
    memory_bytes_free: int
    gpu_free: int
    platform: str
    engine_version: str
    store_kind: str
    labels: dict[str, str]
    resource_group: str
    boot_id: str
    seen_at: datetime
    events: tuple[AgentEventView, ...]
