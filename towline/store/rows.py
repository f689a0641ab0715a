"""Tables. Rows are dumb: a SQLModel table class checks nothing, so rows are built from domain values only, and the
database holds what must hold."""

# SQLModel's `__tablename__` is declared in a way that a plain string does not satisfy, though that is how it is documented.
# pyright: reportAssignmentType=false

from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel

from towline.domain.agents import AgentEvent, AgentStatus
from towline.domain.lifecycle import FINAL, Status
from towline.domain.pulling import PullOutcome, WaitOutcome
from towline.domain.quotas import Quota
from towline.domain.sessions import Kind


def utc_now() -> datetime:
    """Now, aware."""
    return datetime.now(UTC)


def _moment(*, nullable: bool = False) -> Any:
    return Column(DateTime(timezone=True), nullable=nullable)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


_STATUSES = _listed(Status)
_ENDED = f"(status IN ({_listed(status for status in Status if status in FINAL)})) = (ended_at IS NOT NULL)"
_OUTCOMES = _listed(PullOutcome)
_WAITS = _listed(WaitOutcome)
_TURN = (text("(kind = 'interactive') DESC"), text("priority DESC"), "created_at", "id")
_LIMITS = " AND ".join(f"{field.name} >= 0" for field in fields(Quota))


class FleetRow(SQLModel, table=True):
    """The one fleet whose records these are, by the id of its namespace in Temporal."""

    __tablename__ = "fleet"
    __table_args__ = (CheckConstraint("one = 1", name="fleet_one"),)

    one: int = Field(default=1, primary_key=True)
    id: str


class UserRow(SQLModel, table=True):
    """Who may do what."""

    __tablename__ = "users"
    __table_args__ = (CheckConstraint("role IN ('superadmin', 'user')", name="users_role"),)

    id: str = Field(primary_key=True)
    name: str = Field(sa_column=Column(String, nullable=False, unique=True))
    role: str
    project: str | None = Field(default=None, index=True)
    created_at: datetime = Field(default_factory=utc_now, sa_column=_moment())


class QuotaRow(SQLModel, table=True):
    """Limits, NULL for none. `subject`: `user:<id>`, `project:<name>`, or `user:*` for users that have none of their own."""

    __tablename__ = "quotas"
    __table_args__ = (CheckConstraint(_LIMITS, name="quotas_limits"),)

    subject: str = Field(primary_key=True)
    sessions: int | None = None
    cpu: float | None = None
    memory_bytes: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    gpu: int | None = None
    pending: int | None = None
    kernels: int | None = None
    lifetime_seconds: float | None = None
    priority: int | None = None


class TokenRow(SQLModel, table=True):
    """A bearer token: its SHA-256, never itself."""

    __tablename__ = "tokens"

    id: str = Field(primary_key=True)
    user_id: str = Field(sa_column=Column(ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True))
    hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False, unique=True))
    name: str = ""
    created_at: datetime = Field(default_factory=utc_now, sa_column=_moment())
    expires_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))
    revoked_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))
    last_used_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))


class SessionRow(SQLModel, table=True):
    """A session. `spec` is what was asked; `status` is the fold of its kernels'; `dispatched_at` None: its workflow
    has not shown itself yet."""

    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATUSES})", name="sessions_status"),
        CheckConstraint(_ENDED, name="sessions_ended"),
        CheckConstraint(f"kind IN ({_listed(Kind)})", name="sessions_kind"),
        CheckConstraint("priority BETWEEN 0 AND 100", name="sessions_priority"),
        CheckConstraint("events >= 0", name="sessions_events"),
        UniqueConstraint("owner_id", "idempotency_key", name="sessions_idempotency"),
        Index("sessions_by_age", "created_at", "id"),
        Index("sessions_by_owner", "owner_id", "created_at", "id"),
        Index("sessions_by_status", "status", "created_at", "id"),
        Index("sessions_undispatched", "created_at", postgresql_where=text("dispatched_at IS NULL")),
        Index("sessions_by_quota", *_TURN, postgresql_where=text("status = 'PREPARED' AND reason = 'quota'")),
        Index("sessions_by_turn", *_TURN, postgresql_where=text("status = 'PENDING'")),
        Index("sessions_labels", "labels", postgresql_using="gin"),
        Index(
            "sessions_dependents",
            text("(spec -> 'depends_on')"),
            postgresql_using="gin",
            postgresql_where=text("status = 'PENDING'"),
        ),
    )

    id: str = Field(primary_key=True)
    owner_id: str = Field(sa_column=Column(ForeignKey("users.id"), nullable=False))
    name: str | None = None
    kind: str
    image: str = Field(index=True)
    spec: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    labels: dict[str, str] = Field(default_factory=dict, sa_column=Column(JSONB, nullable=False))
    priority: int = 10
    status: str
    reason: str | None = None
    message: str = ""
    ended_by: str | None = None
    ended_why: str = ""
    idempotency_key: str | None = None
    body_hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    events: int = 0
    created_at: datetime = Field(default_factory=utc_now, sa_column=_moment())
    updated_at: datetime = Field(default_factory=utc_now, sa_column=_moment())
    dispatched_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))
    ended_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))


class KernelRow(SQLModel, table=True):
    """One kernel of a session."""

    __tablename__ = "kernels"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATUSES})", name="kernels_status"),
        CheckConstraint(_ENDED, name="kernels_ended"),
        CheckConstraint("index >= 0", name="kernels_index"),
        CheckConstraint("log_total_bytes >= 0", name="kernels_log"),
        Index("kernels_by_agent", "agent_id", "status"),
    )

    session_id: str = Field(sa_column=Column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True))
    index: int = Field(primary_key=True)
    agent_id: str | None = None
    status: str
    reason: str | None = None
    message: str = ""
    digest: str | None = None
    stale: bool = False
    container_id: str | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    ports: dict[str, list[int]] = Field(default_factory=dict, sa_column=Column(JSONB, nullable=False))
    started_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))
    ended_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))
    log_tail: bytes | None = Field(default=None, sa_column=Column(LargeBinary, nullable=True))
    log_total_bytes: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    log_truncated: bool = False


class EventRow(SQLModel, table=True):
    """What happened to a session, numbered from 1 without gaps."""

    __tablename__ = "events"
    __table_args__ = (
        CheckConstraint("seq >= 1", name="events_seq"),
        CheckConstraint(
            f"from_status IN ({_STATUSES}) AND to_status IN ({_STATUSES}) AND session_status IN ({_STATUSES})",
            name="events_statuses",
        ),
        CheckConstraint(
            "(kind = 'transition') = (kernel IS NOT NULL AND from_status IS NOT NULL AND to_status IS NOT NULL)",
            name="events_transition",
        ),
        Index("events_note", "session_id", "note_key", unique=True),
    )

    session_id: str = Field(sa_column=Column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True))
    seq: int = Field(primary_key=True)
    at: datetime = Field(default_factory=utc_now, sa_column=_moment())
    kind: str
    kernel: int | None = None
    from_status: str | None = None
    to_status: str | None = None
    session_status: str
    reason: str | None = None
    message: str = ""
    actor: str | None = None
    note_key: str | None = None


class AgentRow(SQLModel, table=True):
    """An agent, as it last said of itself."""

    __tablename__ = "agents"
    __table_args__ = (
        CheckConstraint(f"status IN ({_listed(AgentStatus)})", name="agents_status"),
        CheckConstraint("cpu >= 0 AND memory_bytes >= 0 AND gpu >= 0", name="agents_capacity"),
        CheckConstraint("cordoned OR NOT draining", name="agents_draining"),
    )

    id: str = Field(primary_key=True)
    boot_id: str
    status: str
    message: str = ""
    cordoned: bool = False
    draining: bool = False
    drain_deadline: datetime | None = Field(default=None, sa_column=_moment(nullable=True))
    cpu: float
    memory_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    gpu: int = 0
    platform: str = ""
    engine_version: str = ""
    store_kind: str = ""
    labels: dict[str, str] = Field(default_factory=dict, sa_column=Column(JSONB, nullable=False))
    resource_group: str = ""
    seen_at: datetime = Field(default_factory=utc_now, sa_column=_moment())


class AgentEventRow(SQLModel, table=True):
    """What happened to an agent, and what was done to it and by whom."""

    __tablename__ = "agent_events"
    __table_args__ = (
        CheckConstraint(f"kind IN ({_listed(AgentEvent)})", name="agent_events_kind"),
        Index("agent_events_by_agent", "agent_id", "id"),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(), primary_key=True))
    agent_id: str = Field(sa_column=Column(ForeignKey("agents.id", ondelete="CASCADE"), nullable=False))
    at: datetime = Field(default_factory=utc_now, sa_column=_moment())
    kind: str
    message: str = ""
    actor: str | None = None


class LedgerRow(SQLModel, table=True):
    """What a kernel holds of an agent, until `freed_at`. Usage is always the sum of these rows. A kernel holds at most one
    at a time; it has several when it was placed anew."""

    __tablename__ = "ledger"
    __table_args__ = (
        CheckConstraint("cpu >= 0 AND memory_bytes >= 0 AND gpu >= 0", name="ledger_amounts"),
        Index("ledger_held", "agent_id", postgresql_where=text("freed_at IS NULL")),
        Index("ledger_one_hold", "session_id", "kernel", unique=True, postgresql_where=text("freed_at IS NULL")),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(), primary_key=True))
    session_id: str = Field(sa_column=Column(ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False))
    kernel: int
    agent_id: str = Field(sa_column=Column(ForeignKey("agents.id"), nullable=False))
    cpu: float
    memory_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    gpu: int = 0
    reserved_at: datetime = Field(default_factory=utc_now, sa_column=_moment())
    freed_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))


class PullRow(SQLModel, table=True):
    """One transfer of one image to one agent, in flight or past."""

    __tablename__ = "pulls"
    __table_args__ = (
        CheckConstraint(f"outcome IN ({_OUTCOMES})", name="pulls_outcome"),
        Index("pulls_by_age", "started_at", "id"),
    )

    id: str = Field(primary_key=True)
    agent_id: str = Field(index=True)
    image: str
    digest: str | None = None
    outcome: str
    reason: str | None = None
    message: str = ""
    bytes_pulled: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    bytes_present: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    retried_bytes: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    attempts: int = 1
    started_at: datetime = Field(sa_column=_moment())
    ended_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))


class PullWaitRow(SQLModel, table=True):
    """A session's wait for a pull."""

    __tablename__ = "pull_waits"
    __table_args__ = (CheckConstraint(f"outcome IN ({_WAITS})", name="pull_waits_outcome"),)

    pull_id: str = Field(sa_column=Column(ForeignKey("pulls.id", ondelete="CASCADE"), primary_key=True))
    session_id: str = Field(
        sa_column=Column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True, index=True)
    )
    outcome: str
    joined_at: datetime = Field(default_factory=utc_now, sa_column=_moment())
    left_at: datetime | None = Field(default=None, sa_column=_moment(nullable=True))
