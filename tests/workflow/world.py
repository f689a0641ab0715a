"""A small world for workflow tests: what agents and records would do, with gates that a test opens."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from towline.domain.agents import AgentFacts, AgentRecorded, RecordAgent
from towline.domain.containers import ContainerExit, EndContainer, LogPage, ReadLogs, StartContainer, StartedContainer
from towline.domain.lifecycle import FINAL, Reason, Status, Transition, session_status_of
from towline.domain.progress import PullPhase, PullProgress, Verdict
from towline.domain.pulling import CheckAndPull, CheckImage, ImageCheck, PulledImage, PullWait
from towline.domain.records import Admission, Admit, Finish, Freed, Note, Place, Placement, Record
from towline.errors import EngineError

DIGEST = "sha256:" + "a" * 64
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(kw_only=True)
class FakeImages:
    """`present` agents' images; a pull waits for `gate`, and raises `failure` then if there is one."""

    present: bool = True
    digest: str | None = DIGEST
    failure: EngineError | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    verdicts: list[Verdict] = field(default_factory=list)
    pulling: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: int = 0
    pulled: int = 0

    async def check(self, request: CheckImage) -> ImageCheck:
        return ImageCheck(present=self.present, digest=self.digest, image_id="sha256:id" if self.present else None)

    async def pull(self, request: CheckAndPull, on_progress: Callable[[PullProgress], None]) -> PulledImage:
        on_progress(_progress(PullPhase.DOWNLOADING, Verdict.HEALTHY))
        self.pulling.set()
        try:
            for verdict in self.verdicts:
                await asyncio.sleep(0.02)
                on_progress(_progress(PullPhase.DOWNLOADING, verdict))
            await self.gate.wait()
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        if self.failure is not None:
            raise self.failure
        self.pulled += 1
        self.present = True
        return PulledImage(image_ref="sha256:id", digest=request.digest, image_id="sha256:id", pulled=True)


def _progress(phase: PullPhase, verdict: Verdict) -> PullProgress:
    return PullProgress(
        pull_id="p", image="i", agent_id="a1", phase=phase, verdict=verdict, started_at=EPOCH, updated_at=EPOCH
    )


@dataclass(kw_only=True)
class FakeContainers:
    """Containers by (session, kernel). `failures` are raised by the next starts, in order. Starts wait for `gate`, on the
    `gated` agents if some are named."""

    containers: dict[tuple[str, int], StartContainer] = field(default_factory=dict)
    failures: list[EngineError] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    gated: tuple[str, ...] = ()
    end_gate: asyncio.Event = field(default_factory=asyncio.Event)
    starting: asyncio.Event = field(default_factory=asyncio.Event)
    starts: int = 0
    ends: int = 0
    graces: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()
        self.end_gate.set()

    async def start(self, request: StartContainer) -> StartedContainer:
        self.starts += 1
        self.starting.set()
        if not self.gated or request.agent_id in self.gated:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.containers[request.spec.session_id, request.kernel] = request
        return StartedContainer(container_id=f"c{request.kernel}", started_at=EPOCH)

    async def end(self, request: EndContainer) -> ContainerExit:
        await self.end_gate.wait()
        self.ends += 1
        self.graces.append(request.grace_seconds)
        found = self.containers.pop((request.session_id, request.kernel), None)
        return ContainerExit(kernel=request.kernel, exit_code=143 if found else None)

    async def read_logs(self, request: ReadLogs) -> LogPage:
        return LogPage(packed="", next_offset=0, ended=True)

    async def exit_of(self, session_id: str, kernel: int) -> ContainerExit | None:
        return None


@dataclass(kw_only=True)
class FakeRecords:
    """The records in memory: `events` in order, statuses by kernel, one session at a time has a place where `capacity` is 1,
    and one may have containers where `may_run` is 1."""

    capacity: int = 1000
    agents: tuple[str, ...] = ("a1",)
    never: bool = False
    starts_at: datetime | None = None
    started: bool = False
    """`place` has answered `starts_at` once."""
    placings: int = 0
    may_run: int = 1000
    running: set[str] = field(default_factory=set)
    statuses: dict[str, dict[int, Status]] = field(default_factory=dict)
    transitions: dict[str, list[Transition]] = field(default_factory=dict)
    notes: dict[str, list[Note]] = field(default_factory=dict)
    waits: dict[str, list[PullWait]] = field(default_factory=dict)
    finishes: dict[str, list[Finish]] = field(default_factory=dict)
    holding: set[str] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)
    agents_seen: list[RecordAgent] = field(default_factory=list)

    def status(self, session_id: str) -> Status:
        return session_status_of(self.statuses[session_id].values())

    def path(self, session_id: str, kernel: int = 0) -> list[Status]:
        return [step.to_status for step in self.transitions[session_id] if step.kernel == kernel]

    async def place(self, request: Place) -> Placement:
        session_id = request.session_id
        self.placings += 1
        if self.starts_at is not None and not self.started:
            self.started = True
            return Placement(reason=Reason.STARTS_AT, message="not yet", ask_at=self.starts_at)
        if self.never:
            return Placement(never=True, reason=Reason.CANNOT_EVER_FIT, message="no agent is that large")
        if session_id not in self.holding and len(self.holding) >= self.capacity:
            if session_id not in self.waiting:
                self.waiting.append(session_id)
            return Placement(reason=Reason.NO_CAPACITY, message="all agents are full")
        self.holding.add(session_id)
        if session_id in self.waiting:
            self.waiting.remove(session_id)
        kernels = range(len(self.agents))
        self.statuses.setdefault(session_id, dict.fromkeys(kernels, Status.PENDING))
        for to, from_ in ((Status.SCHEDULED, Status.PENDING), (Status.PREPARING, Status.SCHEDULED)):
            steps = (Transition(kernel=kernel, from_status=from_, to_status=to) for kernel in kernels)
            self._apply(session_id, tuple(steps))
        return Placement(agents=self.agents)

    async def admit(self, request: Admit) -> Admission:
        session_id = request.record.session_id
        await self.record(request.record)
        if session_id not in self.running and len(self.running) >= self.may_run:
            if session_id not in self.waiting:
                self.waiting.append(session_id)
            return Admission(admitted=False, message="the quota is used up")
        self.running.add(session_id)
        if session_id in self.waiting:
            self.waiting.remove(session_id)
        prepared = [kernel for kernel, status in self.statuses[session_id].items() if status is Status.PREPARED]
        self._apply(
            session_id,
            tuple(Transition(kernel=k, from_status=Status.PREPARED, to_status=Status.CREATING) for k in prepared),
        )
        return Admission(admitted=True)

    async def record(self, request: Record) -> Freed:
        self._apply(request.session_id, request.transitions)
        self.notes.setdefault(request.session_id, []).extend(request.notes)
        self.waits.setdefault(request.session_id, []).extend(request.pulls)
        if any(step.to_status is Status.PENDING for step in request.transitions):
            self.holding.discard(request.session_id)
            return Freed(woken=tuple(self.waiting[:1]))
        return Freed()

    async def finish(self, request: Finish) -> Freed:
        self.statuses.setdefault(request.session_id, dict.fromkeys(range(len(self.agents)), Status.PENDING))
        self._apply(request.session_id, request.transitions)
        self.finishes.setdefault(request.session_id, []).append(request)
        self.holding.discard(request.session_id)
        self.running.discard(request.session_id)
        return Freed(woken=tuple(self.waiting[:1]))

    async def record_agent(self, request: RecordAgent) -> AgentRecorded:
        self.agents_seen.append(request)
        return AgentRecorded(sessions=tuple(sorted(self.holding)) if request.facts.agent_id in self.agents else ())

    def _apply(self, session_id: str, steps: tuple[Transition, ...]) -> None:
        kernels = self.statuses.setdefault(session_id, {})
        for step in steps:
            current = kernels.setdefault(step.kernel, Status.PENDING)
            assert current not in FINAL, f"{step} after the end"
            assert current is step.from_status, f"{step} does not follow {current}"
            kernels[step.kernel] = step.to_status
            self.transitions.setdefault(session_id, []).append(step)


@dataclass(kw_only=True)
class World:
    """Everything around the workflows. Signals from agents go through `client`, set by the fixture."""

    images: FakeImages = field(default_factory=FakeImages)
    containers: FakeContainers = field(default_factory=FakeContainers)
    records: FakeRecords = field(default_factory=FakeRecords)
    engine_failure: EngineError | None = None
    grace_seconds: float = 0.3

    def facts_of(self, agent_id: str, boot_id: str) -> Callable[[], Awaitable[AgentFacts]]:
        """What the agent's engine answers: fails with `engine_failure`, while there is one."""

        async def facts() -> AgentFacts:
            if self.engine_failure is not None:
                raise self.engine_failure
            return AgentFacts(
                agent_id=agent_id,
                boot_id=boot_id,
                cpu=2.0,
                memory_bytes=1 << 30,
                grace_seconds=self.grace_seconds,
            )

        return facts
