"""Sessions: created once per idempotency key, read and listed."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Select, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.lifecycle import FINAL, Reason, Status
from towline.domain.sessions import SessionSpec
from towline.errors import ConflictError, FieldProblem, InvalidInputError
from towline.store.journal import kernels_of
from towline.store.rows import EventRow, KernelRow, SessionRow, UserRow, utc_now
from towline.store.specs import spec_of, spec_to_json
from towline.store.views import EventView, KernelView, LogTailView, SessionView

_CURSOR_LENGTH_MAX: Final = 200


@dataclass(frozen=True, kw_only=True)
class SessionFilter:
    """Which sessions to list; None leaves a filter out. `label` as (key, value)."""

    owner_id: str | None = None
    owner: str | None = None
    status: tuple[Status, ...] = ()
    image: str | None = None
    agent: str | None = None
    label: tuple[str, str] | None = None


async def create_session(
    tx: AsyncSession, spec: SessionSpec, *, idempotency_key: str | None, body_hash: bytes
) -> tuple[str, bool]:
    """Store a new session, or find the one that the key has made before. Returns its id and whether it is new.

    Raises `ConflictError` when the key was used with another body.
    """
    row = insert(SessionRow).values(
        id=spec.session_id,
        owner_id=spec.owner_id,
        name=spec.name,
        kind=spec.kind,
        image=spec.image,
        spec=spec_to_json(spec),
        labels=spec.labels,
        priority=spec.priority,
        status=Status.PENDING,
        message="",
        ended_why="",
        idempotency_key=idempotency_key,
        body_hash=body_hash,
        events=0,
        created_at=utc_now(),
        updated_at=utc_now(),
    )
    # A second request with the same key waits here for the first one's commit, and then finds its session.
    made = row.on_conflict_do_nothing(constraint="sessions_idempotency").returning(col(SessionRow.id))
    if (await tx.execute(made)).scalar() is not None:
        tx.add_all(
            KernelRow(session_id=spec.session_id, index=index, status=Status.PENDING) for index in range(spec.kernels)
        )
        return spec.session_id, True
    query = select(SessionRow).where(
        col(SessionRow.owner_id) == spec.owner_id, col(SessionRow.idempotency_key) == idempotency_key
    )
    first = (await tx.execute(query)).scalar_one()
    if first.body_hash != body_hash:
        raise ConflictError(f"this Idempotency-Key has made session {first.id} from another body; use a new key")
    return first.id, False


async def get_session(tx: AsyncSession, session_id: str) -> SessionView | None:
    """One session, None where there is none."""
    row = await tx.get(SessionRow, session_id)
    if row is None:
        return None
    [view] = await _views(tx, [row])
    return view


async def list_sessions(
    tx: AsyncSession, which: SessionFilter, *, cursor: str | None, limit: int
) -> tuple[list[SessionView], str | None]:
    """Newest first, `limit` at a time, and the cursor of the next page (None: that was the last).

    Raises `InvalidInputError` for a cursor that is not one of ours.
    """
    query = _filtered(select(SessionRow), which)
    if cursor is not None:
        query = query.where(tuple_(col(SessionRow.created_at), col(SessionRow.id)) < _parse_cursor(cursor))
    query = query.order_by(col(SessionRow.created_at).desc(), col(SessionRow.id).desc()).limit(limit + 1)
    rows = list((await tx.execute(query)).scalars())
    page = rows[:limit]
    onward = _cursor_of(page[-1]) if len(rows) > limit else None
    return await _views(tx, page), onward


async def list_events(tx: AsyncSession, session_id: str, *, after: int, limit: int = 1000) -> list[EventView]:
    """The session's events with numbers above `after`, in order."""
    query = (
        select(EventRow)
        .where(col(EventRow.session_id) == session_id, col(EventRow.seq) > after)
        .order_by(col(EventRow.seq))
        .limit(limit)
    )
    return [_event_view(row) for row in (await tx.execute(query)).scalars()]


async def get_log_tail(tx: AsyncSession, session_id: str, kernel: int) -> LogTailView | None:
    """What is kept of a kernel's log, None where there is no such kernel."""
    row = await tx.get(KernelRow, (session_id, kernel))
    if row is None:
        return None
    return LogTailView(data=row.log_tail, total_bytes=row.log_total_bytes, truncated=row.log_truncated)


async def undispatched(tx: AsyncSession, *, older_than: timedelta, limit: int = 100) -> list[SessionSpec]:
    """Sessions that were stored so long ago, and whose workflow has not shown itself since, oldest first."""
    query = (
        select(SessionRow)
        .where(col(SessionRow.dispatched_at).is_(None), col(SessionRow.created_at) <= utc_now() - older_than)
        .order_by(col(SessionRow.created_at))
        .limit(limit)
    )
    return [spec_of(row) for row in (await tx.execute(query)).scalars()]


async def open_session_ids(tx: AsyncSession) -> set[str]:
    """The sessions that have a workflow and have not ended."""
    not_final = [status.value for status in Status if status not in FINAL]
    query = select(col(SessionRow.id)).where(
        col(SessionRow.status).in_(not_final), col(SessionRow.dispatched_at).is_not(None)
    )
    return set((await tx.execute(query)).scalars())


async def mark_dispatched(tx: AsyncSession, session_id: str) -> None:
    """The session's workflow has been started."""
    await tx.execute(update(SessionRow).where(col(SessionRow.id) == session_id).values(dispatched_at=utc_now()))


def _filtered(query: Select[Any], which: SessionFilter) -> Select[Any]:
    if which.owner_id is not None:
        query = query.where(col(SessionRow.owner_id) == which.owner_id)
    if which.owner is not None:
        named = select(col(UserRow.id)).where(col(UserRow.name) == which.owner)
        query = query.where(col(SessionRow.owner_id).in_(named))
    if which.status:
        query = query.where(col(SessionRow.status).in_(which.status))
    if which.image is not None:
        query = query.where(col(SessionRow.image) == which.image)
    if which.label is not None:
        key, value = which.label
        query = query.where(col(SessionRow.labels).contains({key: value}))
    if which.agent is not None:
        on_agent = select(col(KernelRow.session_id)).where(col(KernelRow.agent_id) == which.agent)
        query = query.where(col(SessionRow.id).in_(on_agent))
    return query


async def _views(tx: AsyncSession, rows: Sequence[SessionRow]) -> list[SessionView]:
    kernels: dict[str, list[KernelRow]] = {row.id: [] for row in rows}
    for kernel in (await tx.execute(kernels_of(list(kernels)))).scalars():
        kernels[kernel.session_id].append(kernel)
    return [_view(row, kernels[row.id]) for row in rows]


def _view(row: SessionRow, kernels: Sequence[KernelRow]) -> SessionView:
    return SessionView(
        spec=spec_of(row),
        status=Status(row.status),
        reason=Reason(row.reason) if row.reason else None,
        message=row.message,
        ended_by=row.ended_by,
        ended_why=row.ended_why,
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
        dispatched=row.dispatched_at is not None,
        last_event=row.events,
        kernels=tuple(_kernel_view(kernel) for kernel in kernels),
    )


def _kernel_view(row: KernelRow) -> KernelView:
    return KernelView(
        index=row.index,
        status=Status(row.status),
        reason=Reason(row.reason) if row.reason else None,
        message=row.message,
        agent_id=row.agent_id,
        digest=row.digest,
        stale=row.stale,
        container_id=row.container_id,
        exit_code=row.exit_code,
        oom_killed=row.oom_killed,
        ports=row.ports,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _event_view(row: EventRow) -> EventView:
    return EventView(
        seq=row.seq,
        at=row.at,
        kind=row.kind,
        kernel=row.kernel,
        from_status=Status(row.from_status) if row.from_status else None,
        to_status=Status(row.to_status) if row.to_status else None,
        session_status=Status(row.session_status),
        reason=Reason(row.reason) if row.reason else None,
        message=row.message,
        actor=row.actor,
    )


def _cursor_of(row: SessionRow) -> str:
    plain = json.dumps([row.created_at.isoformat(), row.id])
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        if len(cursor) > _CURSOR_LENGTH_MAX:
            raise ValueError("too long")
        padded = cursor + "=" * (-len(cursor) % 4)
        moment, session_id = json.loads(base64.urlsafe_b64decode(padded.encode()))
        return datetime.fromisoformat(moment), str(session_id)
    except (ValueError, TypeError, binascii.Error) as error:
        problem = "not a cursor that this server has given"
        raise InvalidInputError(
            "the cursor is not valid", fields=(FieldProblem(field="cursor", problem=problem),)
        ) from error
