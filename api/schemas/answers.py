"""Bodies that clients get."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter

from api.tasks import TaskStatus
from towline.domain.agents import AgentEvent, AgentStatus
from towline.domain.lifecycle import Reason, Status
from towline.domain.progress import PullProgress
from towline.domain.pulling import PullOutcome, WaitOutcome
from towline.domain.sessions import ClusterMode, Kind, Network, PullPolicy
from towline.store.views import EventView, SessionView


class Answer(BaseModel):
    """Made from a view with the same names."""

    model_config = ConfigDict(from_attributes=True)


class KernelAnswer(Answer):
    """One kernel. `pull`: its pull while there is one."""

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
    pull: PullProgress | None = None


class ResourcesAnswer(Answer):
    """What each kernel reserves: cores, bytes, GPUs."""

    cpu: float
    memory_bytes: int
    gpu: int
    shm_bytes: int | None


class SessionAnswer(Answer):
    """A session. `pull`: the pull that it waits for, the slowest of its kernels'. `exit_code`: the first kernel's."""

    id: str
    name: str | None
    kind: Kind
    owner: str
    image: str
    command: list[str] | None
    status: Status
    reason: Reason | None
    message: str
    exit_code: int | None
    ended_by: str | None
    ended_why: str
    resources: ResourcesAnswer
    kernel_count: int
    cluster_mode: ClusterMode
    pull_policy: PullPolicy
    priority: int
    network: Network
    labels: dict[str, str]
    agent: str | None
    resource_group: str | None
    agent_labels: dict[str, str]
    starts_at: datetime | None
    depends_on: list[str]
    time_limit: float | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    last_event: int
    kernels: list[KernelAnswer]
    pull: PullProgress | None = None


class SessionPage(BaseModel):
    """A page of sessions, newest first. `next_cursor` None: that was the last page."""

    sessions: list[SessionAnswer]
    next_cursor: str | None


class EventAnswer(Answer):
    """One event. `session_status`: the session's status after it."""

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


class EventPage(BaseModel):
    """Events in order."""

    events: list[EventAnswer]


class AgentEventAnswer(Answer):
    """What happened to an agent, or was done to it by `actor`."""

    at: datetime
    kind: AgentEvent
    message: str
    actor: str | None


class AgentAnswer(Answer):
    """An agent, its capacity and what is free of it. `message`: why it is not ONLINE. `events`: its newest ones, where one
    agent is asked for."""

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
    events: list[AgentEventAnswer]


class AgentList(BaseModel):
    """Every agent."""

    agents: list[AgentAnswer]


class LedgerDrift(BaseModel):
    """A sentence for each kernel that does not hold what it should, the first hundred; empty: all is well."""

    drift: list[str]


class PullWaitAnswer(Answer):
    """A session's wait for a pull."""

    session_id: str
    outcome: WaitOutcome
    joined_at: datetime
    left_at: datetime | None


class PullAnswer(Answer):
    """A pull, in flight or past. `other_waiters`: sessions that are not the caller's to see. `progress` while it runs."""

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
    waits: list[PullWaitAnswer]
    other_waiters: int
    progress: PullProgress | None = None


class PullList(BaseModel):
    """Pulls, newest first."""

    pulls: list[PullAnswer]


class TasksStarted(BaseModel):
    """Tasks in the order of the agents."""

    task_ids: list[str]


class PulledImageAnswer(Answer):
    """An image that is on the agent now; `pulled` False: it was there already."""

    image_id: str
    digest: str | None
    pulled: bool


class FailureAnswer(Answer):
    """Why a task failed."""

    reason: Reason
    message: str


class TaskAnswer(Answer):
    """A check-and-pull on its own."""

    task_id: str
    status: TaskStatus
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    progress: PullProgress | None
    image: PulledImageAnswer | None
    failure: FailureAnswer | None


class UserAnswer(Answer):
    """A user."""

    id: str
    name: str
    role: str
    project: str | None
    created_at: datetime


class UserList(BaseModel):
    """Every user."""

    users: list[UserAnswer]


class TokenAnswer(Answer):
    """A token, without its text."""

    id: str
    user: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewTokenAnswer(TokenAnswer):
    """A new token with its text, which is shown this once."""

    token: str


class TokenList(BaseModel):
    """A user's tokens."""

    tokens: list[TokenAnswer]


class Health(BaseModel):
    """`ok`, or what does not answer."""

    status: str
    checks: dict[str, str] = {}


PROGRESS = TypeAdapter(PullProgress)


def event_answer(view: EventView) -> EventAnswer:
    """An event as it is sent."""
    return EventAnswer.model_validate(view)


_AS_ASKED: Final = (
    *("name", "kind", "owner", "image", "cluster_mode", "pull_policy", "priority", "network", "labels"),
    *("agent", "resource_group", "agent_labels", "starts_at"),
)
"""What is answered of a session as it was asked for, under the same names."""


def session_answer(view: SessionView, pulls: dict[str, PullProgress] | None = None) -> SessionAnswer:
    """A session as it is sent; `pulls` by agent id, where there are any."""
    spec = view.spec
    live = pulls or {}
    kernels = [
        KernelAnswer.model_validate(kernel).model_copy(
            update={"pull": live.get(kernel.agent_id or "") if kernel.status is Status.PULLING else None}
        )
        for kernel in view.kernels
    ]
    return SessionAnswer(
        **{name: getattr(spec, name) for name in _AS_ASKED},
        id=spec.session_id,
        command=None if spec.command is None else list(spec.command),
        status=view.status,
        reason=view.reason,
        message=view.message,
        exit_code=view.kernels[0].exit_code if view.kernels else None,
        ended_by=view.ended_by,
        ended_why=view.ended_why,
        resources=ResourcesAnswer.model_validate(spec.resources),
        kernel_count=spec.kernels,
        depends_on=list(spec.depends_on),
        time_limit=spec.time_limit_seconds,
        created_at=view.created_at,
        updated_at=view.updated_at,
        ended_at=view.ended_at,
        last_event=view.last_event,
        kernels=kernels,
        pull=slowest(live.values()) if view.status is Status.PULLING else None,
    )


def slowest(pulls: Iterable[PullProgress]) -> PullProgress | None:
    """The pull that is furthest from its end."""
    return min(pulls, key=lambda pull: -1.0 if pull.percent is None else pull.percent, default=None)
