"""Moving kernels and writing events: the guarded updates that every use case shares."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Select, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import defer
from sqlmodel import col

from towline.domain.lifecycle import FINAL, Reason, Status, Transition, advance, may_advance, session_status_of
from towline.domain.records import WAITS, Note
from towline.store.database import EVENTS_CHANNEL
from towline.store.rows import EventRow, KernelRow, SessionRow, utc_now

_log = logging.getLogger(__name__)


def kernels_of(session_ids: Sequence[str]) -> Select[KernelRow]:
    """The kernels of sessions, in order, without the tails of their logs: those are large, and few ask for them."""
    log_tail: Any = KernelRow.log_tail  # SQLModel types a mapped attribute as its value.
    return (
        select(KernelRow)
        .options(defer(log_tail, raiseload=True))
        .where(col(KernelRow.session_id).in_(session_ids))
        .order_by(col(KernelRow.session_id), col(KernelRow.index))
    )


class Journal:
    """One session in one transaction, its row locked: events are numbered without gaps and nobody writes between."""

    def __init__(self, tx: AsyncSession, session: SessionRow, kernels: list[KernelRow]) -> None:
        self._tx = tx
        self.session = session
        self.kernels = {kernel.index: kernel for kernel in kernels}

    @classmethod
    async def open(cls, tx: AsyncSession, session_id: str) -> "Journal | None":
        """Lock the session and read its kernels. None: there is no such session."""
        session = await tx.get(SessionRow, session_id, with_for_update=True)
        if session is None:
            return None
        if session.dispatched_at is None:  # Only the session's workflow writes here.
            session.dispatched_at = utc_now()
        return cls(tx, session, list((await tx.execute(kernels_of([session_id]))).scalars()))

    @property
    def is_final(self) -> bool:
        """The session has ended."""
        return Status(self.session.status) in FINAL

    def apply(self, step: Transition, *, actor: str | None = None) -> bool:
        """Take a step if the kernel is where the step begins; a stale or repeated step is dropped. True if it was taken.

        Raises `ValueError` for a step that the table of transitions does not have.
        """
        kernel = self.kernels.get(step.kernel)
        if kernel is None or kernel.status != step.from_status or not advance(step.from_status, step.to_status):
            return False
        kernel.status = step.to_status
        kernel.reason = step.reason
        kernel.message = step.message
        if step.to_status in FINAL:
            kernel.ended_at = utc_now()
        self._refold()
        self._event(
            kind="transition",
            kernel=step.kernel,
            from_status=step.from_status,
            to_status=step.to_status,
            reason=step.reason,
            message=step.message,
            actor=actor,
        )
        return True

    def end(self, step: Transition, *, actor: str | None) -> bool:
        """As `apply`, but a final step is taken from wherever the kernel is.

        The records can be ahead of who asks: an attempt to place may have been committed although its answer never came.
        The end must not be lost for that.
        """
        kernel = self.kernels.get(step.kernel)
        if kernel is None or kernel.status in FINAL or step.to_status not in FINAL:
            return self.apply(step, actor=actor)
        current = Status(kernel.status)
        if not may_advance(current, step.to_status):
            _log.error(
                "%s: kernel %d is %s and cannot become %s", self.session.id, step.kernel, current, step.to_status
            )
            return False
        return self.apply(replace(step, from_status=current), actor=actor)

    def wait(self, reason: Reason | None, message: str) -> bool:
        """Show why the session is not getting on. An event only when the reason is another one: the sentence's numbers change
        each time that it asks. Returns whether it was one."""
        is_news = self.session.reason != reason
        self.session.reason, self.session.message, self.session.updated_at = reason, message, utc_now()
        if is_news:
            self._event(kind=WAITS, kernel=None, message=message, reason=reason)
        return is_news

    async def note(self, note: Note) -> None:
        """Keep a note, once per key."""
        query = select(func.count()).where(
            col(EventRow.session_id) == self.session.id, col(EventRow.note_key) == note.key
        )
        if not (await self._tx.execute(query)).scalar():
            self._event(kind=note.kind, kernel=note.kernel, message=note.message, note_key=note.key)

    async def announce(self) -> None:
        """Tell those who listen, when this transaction commits."""
        await self._tx.execute(
            text("SELECT pg_notify(:channel, :session_id)"),
            {"channel": EVENTS_CHANNEL, "session_id": self.session.id},
        )

    def _refold(self) -> None:
        status = session_status_of(Status(kernel.status) for kernel in self.kernels.values())
        if self.session.status != status:
            self.session.status = status
            self.session.reason = None
            self.session.message = ""
            self.session.ended_at = utc_now() if status in FINAL else None
        self.session.updated_at = utc_now()

    def _event(
        self,
        *,
        kind: str,
        kernel: int | None,
        message: str,
        from_status: Status | None = None,
        to_status: Status | None = None,
        reason: str | None = None,
        actor: str | None = None,
        note_key: str | None = None,
    ) -> None:
        self.session.events += 1
        self._tx.add(
            EventRow(
                session_id=self.session.id,
                seq=self.session.events,
                at=utc_now(),
                kind=kind,
                kernel=kernel,
                from_status=from_status,
                to_status=to_status,
                session_status=self.session.status,
                reason=reason,
                message=message,
                actor=actor,
                note_key=note_key,
            )
        )
