"""The workflows as the API sees them, in memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from towline.domain.agents import Drain
from towline.domain.containers import LogPage, ReadLogs
from towline.domain.progress import PullProgress
from towline.domain.queues import Signal
from towline.domain.sessions import EndRequest, SessionSpec
from towline.errors import UnavailableError


@dataclass(kw_only=True)
class FakeOrchestrator:
    """Satisfies `api.orchestrator.Orchestrator`. `away`: Temporal does not answer."""

    away: bool = False
    started: list[SessionSpec] = field(default_factory=list)
    signals: list[tuple[str, Signal, EndRequest]] = field(default_factory=list)
    orders: list[tuple[str, Drain | None]] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    progress: dict[str, dict[str, PullProgress]] = field(default_factory=dict)
    progress_reads: int = 0
    pages: dict[int, LogPage] = field(default_factory=dict)

    async def start(self, spec: SessionSpec) -> bool:
        if not self.away:
            self.started.append(spec)
        return not self.away

    async def signal(self, spec: SessionSpec, signal: Signal, request: EndRequest) -> None:
        if self.away:
            raise UnavailableError("Temporal does not answer now; nothing was changed")
        self.signals.append((spec.session_id, signal, request))

    async def order(self, agent_id: str, drain: Drain | None) -> None:
        if self.away:
            raise UnavailableError("recorded, but Temporal does not answer")
        self.orders.append((agent_id, drain))

    async def wake(self, session_ids: Iterable[str]) -> None:
        self.woken += session_ids

    async def pulls(self, session_id: str) -> dict[str, PullProgress]:
        self.progress_reads += 1
        return self.progress.get(session_id, {})

    async def read_logs(self, agent_id: str, request: ReadLogs) -> LogPage:
        gone = LogPage(packed="", next_offset=request.offset, ended=True, found=False)
        return self.pages.get(request.offset, gone)

    async def responds(self) -> bool:
        return not self.away
