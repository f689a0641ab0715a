"""Quotas: what a user, or the users of a project together, may have at once, and whose turn it is where that is used up. Pure.

A kernel counts from CREATING until it has ended: one that is still being brought its image, or waits for its turn, costs its
user nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from towline.domain.sessions import Resources, SessionSpec

_CORES_TOLERANCE: Final = 1e-9
"""Cores are floats that sums of fractions reach only nearly."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What counts against a quota: `cpu` in cores, `memory_bytes` in bytes, of the kernels from CREATING on and their sessions."""

    sessions: int = 0
    cpu: float = 0.0
    memory_bytes: int = 0
    gpu: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            sessions=self.sessions + other.sessions,
            cpu=self.cpu + other.cpu,
            memory_bytes=self.memory_bytes + other.memory_bytes,
            gpu=self.gpu + other.gpu,
        )


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Limits; None is no limit. The first four are of `Usage`; `pending` counts sessions before CREATING; the others are of
    one session: its kernels, its time limit in seconds, its priority."""

    sessions: int | None = None
    cpu: float | None = None
    memory_bytes: int | None = None
    gpu: int | None = None
    pending: int | None = None
    kernels: int | None = None
    lifetime_seconds: float | None = None
    priority: int | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Whose quota it is: a `user`'s (`*`: of every user without one of their own) or a `project`'s, by name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, kw_only=True)
class Account:
    """A quota, whose it is, what is used of it, and how many sessions do not use it yet."""

    subject: Subject
    quota: Quota
    used: Usage = field(default_factory=Usage)
    pending: int = 0


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One limit that is not kept: what there would be, and what there may be."""

    subject: Subject
    limit: str
    wanted: float
    allowed: float

    def __str__(self) -> str:
        wanted, allowed = (f"{round(value, 6):.15g}" for value in (self.wanted, self.allowed))
        return f"{self.limit} of {self.subject}: {wanted}, and {allowed} is the limit"


@dataclass(frozen=True, kw_only=True)
class Waiter:
    """A session whose image is there, and that waits for its turn. `keys`: of the accounts that it counts against."""

    session_id: str
    usage: Usage
    keys: tuple[str, ...]


def usage_of(kernels: int, each: Resources) -> Usage:
    """What a session counts for."""
    return Usage(sessions=1, cpu=each.cpu * kernels, memory_bytes=each.memory_bytes * kernels, gpu=each.gpu * kernels)


def shortfalls(account: Account, more: Usage) -> list[Violation]:
    """The limits that `more` beside what is used would break."""
    total = account.used + more
    return _over(
        account,
        sessions=total.sessions,
        cpu=total.cpu - _CORES_TOLERANCE,
        memory_bytes=total.memory_bytes,
        gpu=total.gpu,
    )


def refusals(account: Account, spec: SessionSpec) -> list[Violation]:
    """The limits that forbid a new session: those that it breaks although nothing else runs, and the number of those that wait."""
    alone = shortfalls(replace(account, used=Usage()), usage_of(spec.kernels, spec.resources))
    return alone + _over(
        account,
        pending=account.pending + 1,
        kernels=spec.kernels,
        lifetime_seconds=spec.time_limit_seconds,
        priority=spec.priority,
    )


def in_turn(waiting: Sequence[Waiter], accounts: Mapping[str, Account], *, limit: int) -> tuple[str, ...]:
    """The first `limit` of the waiting sessions, in their order, that their accounts have room for, one after the other.

    One that there is no room for keeps nobody else waiting: all who share an account are its user's or its project's own.
    """
    left = dict(accounts)
    served: list[str] = []
    for waiter in waiting:
        if len(served) == limit:
            break
        mine = {key: left[key] for key in waiter.keys}
        if not any(shortfalls(account, waiter.usage) for account in mine.values()):
            served.append(waiter.session_id)
            left |= {key: replace(account, used=account.used + waiter.usage) for key, account in mine.items()}
    return tuple(served)


def within(spec: SessionSpec, accounts: Sequence[Account]) -> SessionSpec:
    """The spec with the time limit of its quotas, where none was asked for."""
    limits = [one.quota.lifetime_seconds for one in accounts if one.quota.lifetime_seconds is not None]
    if spec.time_limit_seconds is not None or not limits:
        return spec
    return replace(spec, time_limit_seconds=min(limits))


def _over(account: Account, **wanted: float | None) -> list[Violation]:
    limits = {name: getattr(account.quota, name) for name in wanted}
    return [
        Violation(subject=account.subject, limit=name, wanted=value, allowed=limits[name])
        for name, value in wanted.items()
        if value is not None and limits[name] is not None and value > limits[name]
    ]
