"""What kernels hold of agents, and who waits for room. Usage is always the sum of the ledger's rows; nothing is cached."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Select, and_, func, or_, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.agents import AgentStatus
from towline.domain.lifecycle import FINAL, Reason, Status
from towline.domain.placement import AgentRoom, Wish, who_fits
from towline.domain.sessions import Kind, Resources
from towline.store.journal import Journal
from towline.store.rows import AgentRow, LedgerRow, SessionRow, utc_now
from towline.store.specs import WISH_FIELDS, wish_from

GIVES_BACK: Final = FINAL | {Status.PENDING}
"""Statuses in which a kernel holds nothing (TERMINATING still does: its container may be there)."""

_PLACEMENT_LOCK: Final = 0x746F776C
"""Advisory lock: one placement at a time, so that two never count on the same room."""

TURN_KEPT: Final = timedelta(minutes=5)
"""A waiting session asks again every two minutes. One that has not asked for so long has lost its turn, not its place: its
workflow is gone or hangs, and it must not keep the others from room that it does not take."""

KEPT_AFTER: Final = timedelta(minutes=5)
"""So old, a session that does not fit has room kept for it."""

# A literal, as the indexes have it: with a parameter, a prepared plan could not use them.
_IS_INTERACTIVE: Final = col(SessionRow.kind) == text(f"'{Kind.INTERACTIVE}'")

IN_TURN: Final = (
    _IS_INTERACTIVE.desc(),
    col(SessionRow.priority).desc(),
    col(SessionRow.created_at),
    col(SessionRow.id),
)
"""The order in which sessions that wait are served."""

_AS_SAID: Final = ("platform", "resource_group", "labels", "cpu", "memory_bytes", "gpu", "cordoned")
"""What placement looks at of an agent's row, under the same names."""

_AHEAD_MAX: Final = 100
_WAITING_MAX: Final = 500
_WOKEN_MAX: Final = 100


async def lock_placement(tx: AsyncSession) -> None:
    """Wait until no other transaction places. Take it before any row's lock."""
    await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PLACEMENT_LOCK})


async def rooms(tx: AsyncSession) -> list[AgentRoom]:
    """Every agent with what is free on it: its capacity less the sum of the ledger's rows."""
    held = (
        select(
            col(LedgerRow.agent_id),
            func.sum(LedgerRow.cpu).label("cpu"),
            func.sum(LedgerRow.memory_bytes).label("memory_bytes"),
            func.sum(LedgerRow.gpu).label("gpu"),
        )
        .where(col(LedgerRow.freed_at).is_(None))
        .group_by(col(LedgerRow.agent_id))
        .subquery()
    )
    free: dict[str, ColumnElement[Any]] = {
        "cpu_free": col(AgentRow.cpu) - func.coalesce(held.c.cpu, 0.0),
        "memory_bytes_free": (col(AgentRow.memory_bytes) - func.coalesce(held.c.memory_bytes, 0)).cast(BigInteger),
        "gpu_free": (col(AgentRow.gpu) - func.coalesce(held.c.gpu, 0)).cast(BigInteger),
    }
    said: list[ColumnElement[Any]] = [
        col(AgentRow.id).label("agent_id"),
        (col(AgentRow.status) == AgentStatus.ONLINE).label("online"),
        *(getattr(AgentRow, name) for name in _AS_SAID),
        *(value.label(name) for name, value in free.items()),
    ]
    # Columns and not rows: this is read for every placement, and of a thousand agents half of the time went into objects.
    query = select(*said).outerjoin(held, held.c.agent_id == col(AgentRow.id)).order_by(col(AgentRow.id))
    return [AgentRoom(**row) for row in (await tx.execute(query)).mappings()]


async def held_by(tx: AsyncSession, session_id: str) -> list[LedgerRow]:
    """What the session's kernels hold now, in their order."""
    query = (
        select(LedgerRow)
        .where(col(LedgerRow.session_id) == session_id, col(LedgerRow.freed_at).is_(None))
        .order_by(col(LedgerRow.kernel))
    )
    return list((await tx.execute(query)).scalars())


async def sessions_on(tx: AsyncSession, agent_id: str) -> tuple[str, ...]:
    """The sessions that hold something of the agent, by id."""
    held = (col(LedgerRow.agent_id) == agent_id, col(LedgerRow.freed_at).is_(None))
    query = select(col(LedgerRow.session_id)).where(*held).distinct().order_by(col(LedgerRow.session_id))
    return tuple((await tx.execute(query)).scalars())


def reserve(tx: AsyncSession, session_id: str, agents: Sequence[str], each: Resources) -> None:
    """Hold `each` for every kernel, on the agents in the kernels' order."""
    tx.add_all(
        LedgerRow(
            session_id=session_id,
            kernel=kernel,
            agent_id=agent_id,
            cpu=each.cpu,
            memory_bytes=each.memory_bytes,
            gpu=each.gpu,
        )
        for kernel, agent_id in enumerate(agents)
    )


async def give_back(tx: AsyncSession, journal: Journal) -> None:
    """Free what is held by kernels that are to be placed anew, and everything once the session has ended."""
    done = [index for index, kernel in journal.kernels.items() if journal.is_final or kernel.status == Status.PENDING]
    held = (
        col(LedgerRow.session_id) == journal.session.id,
        col(LedgerRow.kernel).in_(done),
        col(LedgerRow.freed_at).is_(None),
    )
    await tx.execute(update(LedgerRow).where(*held).values(freed_at=utc_now()))


def in_front_of(session: SessionRow) -> tuple[ColumnElement[bool], ...]:
    """Of sessions that wait: those whose turn comes before this one's, and is not lost."""
    rank, own_rank = (_IS_INTERACTIVE, SessionRow.priority), (session.kind == Kind.INTERACTIVE, session.priority)
    older = tuple_(col(SessionRow.created_at), col(SessionRow.id)) < (session.created_at, session.id)
    return (
        or_(tuple_(*rank) > own_rank, and_(tuple_(*rank) == own_rank, older)),
        col(SessionRow.updated_at) > utc_now() - TURN_KEPT,
    )


async def ahead_of(tx: AsyncSession, session: SessionRow) -> list[Wish]:
    """What the sessions want that were told to wait and whose turn is before this one's: interactive ones, then those of a
    higher priority, then older ones."""
    return [wish for _, wish in await _read(tx, _waiting(_AHEAD_MAX).where(*in_front_of(session)))]


async def who_may_fit(tx: AsyncSession) -> tuple[str, ...]:
    """Those of the waiting sessions that there is room for now, in the order in which they shall try again.

    Call it in a transaction that begins after the one that made room, with the placement lock taken: then a session that
    did not see the room is already known to wait, and two that made room at once see both rooms.
    """
    waiting = await _read(tx, _waiting(_WAITING_MAX))
    return who_fits(waiting, await rooms(tx), limit=_WOKEN_MAX) if waiting else ()


def is_overdue(session: SessionRow) -> bool:
    """Whether room is, or was, kept for the session."""
    return session.created_at < utc_now() - KEPT_AFTER


def _is_overdue() -> ColumnElement[bool]:
    now = utc_now()
    has_its_turn = col(SessionRow.updated_at) > now - TURN_KEPT
    return and_(col(SessionRow.created_at) < now - KEPT_AFTER, has_its_turn).label("is_overdue")


def _waiting(limit: int) -> Select[*tuple[Any, ...]]:
    # The status is a literal: with a parameter, a prepared plan could not use the partial index.
    wanted = [col(SessionRow.spec)[name] for name in WISH_FIELDS]
    return (
        select(col(SessionRow.id), _is_overdue(), *wanted)
        .where(col(SessionRow.status) == text(f"'{Status.PENDING}'"), col(SessionRow.reason) == Reason.NO_CAPACITY)
        .order_by(*IN_TURN)
        .limit(limit)
    )


async def _read(tx: AsyncSession, query: Select[*tuple[Any, ...]]) -> list[tuple[str, Wish]]:
    return [(row[0], replace(wish_from(row[2:]), is_overdue=row[1])) for row in await tx.execute(query)]
