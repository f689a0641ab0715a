"""Statuses of sessions and kernels, the one transition table, and the fold from kernels to a session.

The workflow decides with `advance`; a store records with `WHERE status = :from`; nobody else changes a status.
Final statuses are those with no way out of them, computed from the table.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """Where a kernel, and by the fold a session, is in its life."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    PULLING = "PULLING"
    PREPARED = "PREPARED"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"
    ERROR = "ERROR"


class Reason(StrEnum):
    """Why a status is what it is. Stable, machine-readable; the sentence beside it is for people."""

    # Ends that somebody asked for, or that the command reached by itself.
    EXITED = "exited"
    OOM_KILLED = "oom-killed"
    TERMINATED_BY_USER = "terminated-by-user"
    TERMINATED_BY_ADMIN = "terminated-by-admin"
    CANCELLED_BY_USER = "cancelled-by-user"
    CANCELLED_BY_ADMIN = "cancelled-by-admin"
    TIME_LIMIT = "time-limit"
    PEER_ENDED = "peer-ended"
    # Waiting, visibly.
    STARTS_AT = "starts-at"
    DEPENDENCY = "dependency"
    NO_CAPACITY = "no-capacity"
    QUOTA = "quota"
    AGENT_UNREACHABLE = "agent-unreachable"
    # Placement.
    CANNOT_EVER_FIT = "cannot-ever-fit"
    DEPENDENCY_FAILED = "dependency-failed"
    AGENT_LOST = "agent-lost"
    AGENT_DRAINED = "agent-drained"
    # The image.
    IMAGE_NOT_FOUND = "image-not-found"
    ACCESS_DENIED = "access-denied"
    UNAUTHORIZED = "unauthorized"
    RATE_LIMITED = "rate-limited"
    REGISTRY_ERROR = "registry-error"
    TLS = "tls"
    DNS = "dns"
    CONNECTION_REFUSED = "connection-refused"
    NETWORK = "network"
    DIGEST_MISMATCH = "digest-mismatch"
    NO_SPACE = "no-space"
    PLATFORM_MISMATCH = "platform-mismatch"
    INVALID_REFERENCE = "invalid-reference"
    PULL_STALLED = "pull-stalled"
    PULL_DEADLINE = "pull-deadline"
    IMAGE_VANISHED = "image-vanished"
    IMAGE_ABSENT = "image-absent"
    # The engine and the container.
    ENGINE_UNAVAILABLE = "engine-unavailable"
    ENGINE_UNRESPONSIVE = "engine-unresponsive"
    ENGINE_ERROR = "engine-error"
    COMMAND_NOT_FOUND = "command-not-found"
    NO_COMMAND = "no-command"
    PORT_IN_USE = "port-in-use"
    MOUNT_INVALID = "mount-invalid"
    NO_DEVICE = "no-device"
    NO_NETWORK = "no-network"
    CONTAINER_START_FAILED = "container-start-failed"
    CONTAINER_LOST = "container-lost"
    # Ourselves.
    WORKFLOW_LOST = "workflow-lost"
    INTERNAL = "internal"


_S = Status
_BEFORE_RUNNING_ENDS: Final = frozenset({_S.CANCELLED, _S.ERROR, _S.TERMINATING})

TRANSITIONS: Final[dict[Status, frozenset[Status]]] = {
    _S.PENDING: frozenset({_S.SCHEDULED}) | _BEFORE_RUNNING_ENDS,
    _S.SCHEDULED: frozenset({_S.PREPARING, _S.PENDING}) | _BEFORE_RUNNING_ENDS,
    _S.PREPARING: frozenset({_S.PULLING, _S.PREPARED, _S.PENDING}) | _BEFORE_RUNNING_ENDS,
    _S.PULLING: frozenset({_S.PREPARED, _S.PREPARING, _S.PENDING}) | _BEFORE_RUNNING_ENDS,
    _S.PREPARED: frozenset({_S.CREATING, _S.PREPARING, _S.PENDING}) | _BEFORE_RUNNING_ENDS,
    _S.CREATING: frozenset({_S.RUNNING, _S.PREPARING, _S.PENDING}) | _BEFORE_RUNNING_ENDS,
    _S.RUNNING: frozenset({_S.TERMINATING, _S.TERMINATED, _S.ERROR}),
    _S.TERMINATING: frozenset({_S.TERMINATED, _S.CANCELLED, _S.ERROR}),
    _S.TERMINATED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.ERROR: frozenset(),
}

FINAL: Final[frozenset[Status]] = frozenset(status for status, onward in TRANSITIONS.items() if not onward)
BEFORE_RUNNING: Final[tuple[Status, ...]] = (
    _S.PENDING,
    _S.SCHEDULED,
    _S.PREPARING,
    _S.PULLING,
    _S.PREPARED,
    _S.CREATING,
)
QUOTA_COUNTED: Final[frozenset[Status]] = frozenset({_S.CREATING, _S.RUNNING, _S.TERMINATING})
"""Statuses that count against the user's quota: a kernel still being brought its image, or waiting in PREPARED for its user's
quota, costs its user nothing."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """One step of one kernel. `kernel` is its index in the session."""

    kernel: int
    from_status: Status
    to_status: Status
    reason: Reason | None = None
    message: str = ""


def may_advance(current: Status, to: Status) -> bool:
    """True where the table has the step."""
    return to in TRANSITIONS[current]


def advance(current: Status, to: Status) -> bool:
    """Whether to take the step: True takes it, False says that the end came first (a final status absorbs).

    Raises `ValueError` for a step that the table does not have: that is a fault in the caller.
    """
    if current in FINAL:
        return False
    if not may_advance(current, to):
        raise ValueError(f"no transition from {current} to {to}")
    return True


_ENDING: Final = frozenset({_S.TERMINATING, _S.CANCELLED, _S.ERROR})
_SLOWEST_FIRST: Final[tuple[Status, ...]] = (
    _S.PENDING,
    _S.SCHEDULED,
    _S.PULLING,
    _S.PREPARING,
    _S.CREATING,
    _S.PREPARED,
    _S.RUNNING,
)


def session_status_of(kernels: Iterable[Status]) -> Status:
    """The session's status, a pure function of its kernels' statuses.

    When all have ended, ERROR beats CANCELLED beats TERMINATED. Before that, one kernel that is ending, cancelled or failed
    makes the session TERMINATING (a kernel that has done its work does not: the others go on); then PENDING and SCHEDULED
    win (all are placed, or none is), PULLING beats PREPARING beats CREATING beats PREPARED, and RUNNING comes last.
    """
    statuses = frozenset(kernels)
    if not statuses:
        raise ValueError("a session has at least one kernel")
    if statuses <= FINAL:
        return next(end for end in (_S.ERROR, _S.CANCELLED, _S.TERMINATED) if end in statuses)
    if statuses & _ENDING:
        return _S.TERMINATING
    return next(status for status in _SLOWEST_FIRST if status in statuses)
