"""One session as the records in memory keep it."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import (
    FINAL,
    QUOTA_COUNTED,
    Reason,
    Status,
    Transition,
    advance,
    may_advance,
    session_status_of,
)
from towline.domain.pulling import PullWait
from towline.domain.quotas import Usage, usage_of
from towline.domain.records import (
    WAITS,
    KernelFacts,
    Note,
    Placement,
)
from towline.domain.sessions import SessionSpec
from towline.store.views import EventView, KernelView, LogTailView

NOTHING: Final = LogTailView(data=None, total_bytes=0, truncated=False)


def new_kernel(index: int) -> KernelView:
    return KernelView(
        index=index,
        status=Status.PENDING,
        reason=None,
        message="",
        agent_id=None,
        digest=None,
        stale=False,
        container_id=None,
        exit_code=None,
        oom_killed=False,
        ports={},
        started_at=None,
        ended_at=None,
    )


@dataclass(kw_only=True)
class RecordedSession:
    """One session, changed in place; `turn` counts up with each session that is added."""

    spec: SessionSpec
    turn: int
    kernels: list[KernelView]
    created_at: datetime
    status: Status = Status.PENDING
    reason: Reason | None = None
    message: str = ""
    ended_by: str | None = None
    ended_why: str = ""
    ended_at: datetime | None = None
    events: list[EventView] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)
    logs: dict[int, LogTailView] = field(default_factory=dict)
    held: dict[int, str] = field(default_factory=dict)
    waits: list[PullWait] = field(default_factory=list)

    @property
    def waits_for_room(self) -> bool:
        return self.status is Status.PENDING and self.reason is Reason.NO_CAPACITY

    @property
    def waits_for_quota(self) -> bool:
        return self.status is Status.PREPARED and self.reason is Reason.QUOTA

    @property
    def usage(self) -> Usage:
        counted = [kernel for kernel in self.held if self.kernels[kernel].status in QUOTA_COUNTED]
        return usage_of(len(counted), self.spec.resources) if counted else Usage()

    def take(self, kernel: int, **values: Any) -> None:
        self.kernels[kernel] = replace(self.kernels[kernel], **values)

    def apply(self, step: Transition, *, actor: str | None = None, from_anywhere: bool = False) -> None:
        if not 0 <= step.kernel < len(self.kernels):
            return
        current = self.kernels[step.kernel].status
        if from_anywhere and step.to_status in FINAL and may_advance(current, step.to_status):
            step = replace(step, from_status=current)
        if current is not step.from_status or not advance(current, step.to_status):
            return
        ended_at = datetime.now(UTC) if step.to_status in FINAL else None
        self.take(step.kernel, status=step.to_status, reason=step.reason, message=step.message, ended_at=ended_at)
        status = session_status_of(kernel.status for kernel in self.kernels)
        if status is not self.status:
            self.status, self.reason, self.message = status, None, ""
            self.ended_at = datetime.now(UTC) if status in FINAL else None
        self._event(
            kind="transition",
            kernel=step.kernel,
            from_status=step.from_status,
            to_status=step.to_status,
            reason=step.reason,
            message=step.message,
            actor=actor,
        )

    def note(self, note: Note) -> None:
        if note.key not in self.notes:
            self.notes.add(note.key)
            self._event(kind=note.kind, kernel=note.kernel, message=note.message)

    def told(self, placement: Placement) -> Placement:
        if not placement.never:
            self.wait(placement.reason, placement.message)
        return placement

    def wait(self, reason: Reason | None, message: str) -> None:
        is_news = self.reason is not reason
        self.reason, self.message = reason, message
        if is_news:
            self._event(kind=WAITS, kernel=None, message=message, reason=reason)

    def give_back(self) -> None:
        for kernel in list(self.held):
            anew = self.kernels[kernel].status is Status.PENDING
            if anew:
                self.take(kernel, agent_id=None, container_id=None, started_at=None, ports={})
            if anew or self.status in FINAL:
                del self.held[kernel]

    def take_exit(self, exit_: ContainerExit) -> None:
        if not 0 <= exit_.kernel < len(self.kernels):
            return
        known = self.kernels[exit_.kernel]
        if known.exit_code is None:
            self.take(exit_.kernel, exit_code=exit_.exit_code, oom_killed=exit_.oom_killed)
        if known.container_id is None:
            self.take(exit_.kernel, container_id=exit_.container_id)
        if not self.logs.get(exit_.kernel, NOTHING).data:
            log = exit_.log
            self.logs[exit_.kernel] = LogTailView(data=log.data(), total_bytes=log.total_bytes, truncated=log.truncated)

    def take_facts(self, facts: KernelFacts) -> None:
        if not 0 <= facts.kernel < len(self.kernels):
            return
        for name in ("digest", "stale", "container_id", "started_at"):
            value = getattr(facts, name)
            if value is not None:
                self.take(facts.kernel, **{name: value})
        if facts.ports is not None:
            self.take(facts.kernel, ports={port: list(published) for port, published in facts.ports.items()})

    def _event(
        self,
        *,
        kind: str,
        kernel: int | None,
        message: str,
        from_status: Status | None = None,
        to_status: Status | None = None,
        reason: Reason | None = None,
        actor: str | None = None,
    ) -> None:
        self.events.append(
            EventView(
                seq=len(self.events) + 1,
                at=datetime.now(UTC),
                kind=kind,
                kernel=kernel,
                from_status=from_status,
                to_status=to_status,
                session_status=self.status,
                reason=reason,
                message=message,
                actor=actor,
            )
        )
