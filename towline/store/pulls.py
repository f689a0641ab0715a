"""Pulls, in flight and past, and who waited for them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Select, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.lifecycle import Reason
from towline.domain.pulling import PullOutcome, PullReport, PullWait, WaitOutcome
from towline.store.rows import PullRow, PullWaitRow, SessionRow, utc_now
from towline.store.views import PullView, PullWaitView

_WAITING: Final = WaitOutcome.WAITING.value
_UNTOLD: Final = frozenset({PullOutcome.RUNNING, PullOutcome.ABORTED})
"""Outcomes that are concluded from who waits, until the agent tells how the pull ended."""


async def record_waits(tx: AsyncSession, session_id: str, waits: Sequence[PullWait]) -> None:
    """Keep what a session knows of pulls and of its own waits. Repeating it changes nothing; an end is never taken back."""
    # In one order for everybody: two sessions that wait for the same pulls would otherwise lock each other out.
    for wait in sorted(waits, key=lambda wait: wait.report.pull_id):
        await _record_wait(tx, session_id, wait)


async def _record_wait(tx: AsyncSession, session_id: str, wait: PullWait) -> None:
    row = await _row_of(tx, wait.report)
    if row.outcome in _UNTOLD and wait.report.outcome is not PullOutcome.RUNNING:
        _take_end(row, wait.report)
    ended = wait.outcome is not WaitOutcome.WAITING
    values = {"outcome": wait.outcome.value, "left_at": utc_now() if ended else None}
    made = insert(PullWaitRow).values(pull_id=row.id, session_id=session_id, joined_at=utc_now(), **values)
    await tx.execute(
        made.on_conflict_do_update(
            index_elements=["pull_id", "session_id"],
            set_=values,
            where=(col(PullWaitRow.outcome) == _WAITING),
        )
    )
    if wait.report.outcome is not PullOutcome.RUNNING:
        return
    waiters = await _waiters(tx, row.id)
    if row.outcome == PullOutcome.RUNNING and not waiters:
        # The last one who waited has left: its agent has aborted the transfer, or is dead.
        row.outcome, row.ended_at = PullOutcome.ABORTED, utc_now()
    elif row.outcome == PullOutcome.ABORTED and waiters:
        # It was not the last: this one had joined before, and says so only now.
        row.outcome, row.ended_at = PullOutcome.RUNNING, None


async def leave_all(tx: AsyncSession, session_id: str) -> None:
    """The session waits for no pull any more. One that nobody waits for then counts as aborted."""
    query = select(col(PullWaitRow.pull_id)).where(
        col(PullWaitRow.session_id) == session_id, col(PullWaitRow.outcome) == _WAITING
    )
    for pull_id in sorted((await tx.execute(query)).scalars()):
        row = (await tx.execute(select(PullRow).where(col(PullRow.id) == pull_id).with_for_update())).scalar_one()
        wait = (col(PullWaitRow.pull_id) == pull_id, col(PullWaitRow.session_id) == session_id)
        await tx.execute(update(PullWaitRow).where(*wait).values(outcome=WaitOutcome.LEFT.value, left_at=utc_now()))
        if row.outcome == PullOutcome.RUNNING and not await _waiters(tx, pull_id):
            row.outcome, row.ended_at = PullOutcome.ABORTED, utc_now()


async def list_pulls(
    tx: AsyncSession, *, owner_id: str | None, outcome: PullOutcome | None, limit: int
) -> list[PullView]:
    """Pulls, newest first; with `owner_id` only those that this user's sessions have waited for."""
    query = select(PullRow).order_by(col(PullRow.started_at).desc(), col(PullRow.id)).limit(limit)
    if outcome is not None:
        query = query.where(col(PullRow.outcome) == outcome)
    if owner_id is not None:
        query = query.where(col(PullRow.id).in_(_of_owner(owner_id)))
    rows = list((await tx.execute(query)).scalars())
    return await _views(tx, rows, owner_id)


async def get_pull(tx: AsyncSession, pull_id: str, *, owner_id: str | None) -> PullView | None:
    """One pull; None where there is none, or the user's sessions never waited for it."""
    query = select(PullRow).where(col(PullRow.id) == pull_id)
    if owner_id is not None:
        query = query.where(col(PullRow.id).in_(_of_owner(owner_id)))
    views = await _views(tx, list((await tx.execute(query)).scalars()), owner_id)
    return views[0] if views else None


def _of_owner(owner_id: str) -> Select[Any]:
    return (
        select(col(PullWaitRow.pull_id))
        .join(SessionRow, col(SessionRow.id) == col(PullWaitRow.session_id))
        .where(col(SessionRow.owner_id) == owner_id)
    )


async def _row_of(tx: AsyncSession, report: PullReport) -> PullRow:
    made = insert(PullRow).values(
        id=report.pull_id,
        agent_id=report.agent_id,
        image=report.image,
        outcome=PullOutcome.RUNNING,
        message="",
        bytes_pulled=0,
        bytes_present=0,
        retried_bytes=0,
        attempts=1,
        started_at=report.started_at,
    )
    await tx.execute(made.on_conflict_do_nothing(index_elements=["id"]))
    return (await tx.execute(select(PullRow).where(col(PullRow.id) == report.pull_id).with_for_update())).scalar_one()


def _take_end(row: PullRow, report: PullReport) -> None:
    row.outcome = report.outcome
    row.digest = report.digest
    row.reason = report.reason
    row.message = report.message
    row.bytes_pulled = report.bytes_pulled
    row.bytes_present = report.bytes_present
    row.retried_bytes = report.retried_bytes
    row.attempts = report.attempts
    row.ended_at = report.ended_at


async def _waiters(tx: AsyncSession, pull_id: str) -> int:
    query = select(func.count()).where(col(PullWaitRow.pull_id) == pull_id, col(PullWaitRow.outcome) == _WAITING)
    return (await tx.execute(query)).scalar() or 0


async def _views(tx: AsyncSession, rows: Sequence[PullRow], owner_id: str | None) -> list[PullView]:
    query = (
        select(PullWaitRow, col(SessionRow.owner_id))
        .join(SessionRow, col(SessionRow.id) == col(PullWaitRow.session_id))
        .where(col(PullWaitRow.pull_id).in_([row.id for row in rows]))
        .order_by(col(PullWaitRow.joined_at))
    )
    waits: dict[str, list[PullWaitView]] = {row.id: [] for row in rows}
    others: dict[str, int] = dict.fromkeys(waits, 0)
    for wait, owner in await tx.execute(query):
        if owner_id is not None and owner != owner_id:
            others[wait.pull_id] += 1  # How many share a pull is no secret, who they are is.
            continue
        waits[wait.pull_id].append(
            PullWaitView(
                session_id=wait.session_id,
                outcome=WaitOutcome(wait.outcome),
                joined_at=wait.joined_at,
                left_at=wait.left_at,
            )
        )
    return [_view(row, waits[row.id], others[row.id]) for row in rows]


def _view(row: PullRow, waits: list[PullWaitView], others: int) -> PullView:
    return PullView(
        id=row.id,
        agent_id=row.agent_id,
        image=row.image,
        digest=row.digest,
        outcome=PullOutcome(row.outcome),
        reason=Reason(row.reason) if row.reason else None,
        message=row.message,
        bytes_pulled=row.bytes_pulled,
        bytes_present=row.bytes_present,
        retried_bytes=row.retried_bytes,
        attempts=row.attempts,
        started_at=row.started_at,
        ended_at=row.ended_at,
        waits=tuple(waits),
        other_waiters=others,
    )
