"""The records in memory. The same suite holds for them and for the store: `tests/contract/store/test_records.py`."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from tests.fakes.recorded_session import NOTHING, RecordedSession, new_kernel
from towline.domain.agents import AgentRecorded, AgentStatus, RecordAgent
from towline.domain.lifecycle import (
    FINAL,
    QUOTA_COUNTED,
    Reason,
    Status,
    Transition,
)
from towline.domain.placement import AgentRoom, Wish, choose, who_fits
from towline.domain.preconditions import Dependency, hindrance
from towline.domain.quotas import Account, Quota, Subject, Usage, Waiter, in_turn, usage_of
from towline.domain.records import (
    Admission,
    Admit,
    Finish,
    Freed,
    Place,
    Placement,
    Record,
)
from towline.domain.sessions import Kind, Resources, SessionSpec
from towline.store.specs import wish_of
from towline.store.views import EventView, LogTailView, SessionView

_WOKEN_MAX: Final = 100


class MemoryRecords:
    """Satisfies the Protocol `Records`. `add` stores a session, as the API does before its workflow starts."""

    def __init__(self) -> None:
        self._sessions: dict[str, RecordedSession] = {}
        self._agents: dict[str, AgentRoom] = {}
        self._quotas: dict[str, Quota] = {}
        self._turns = itertools.count()

    def add(self, spec: SessionSpec) -> None:
        """Store a session."""
        kernels = [new_kernel(index) for index in range(spec.kernels)]
        self._sessions[spec.session_id] = RecordedSession(
            spec=spec, turn=next(self._turns), kernels=kernels, created_at=datetime.now(UTC)
        )

    def set_quota(self, user_id: str, quota: Quota) -> None:
        """Limit what a user may have."""
        self._quotas[user_id] = quota

    def view(self, session_id: str) -> SessionView:
        """The session as recorded."""
        session = self._sessions[session_id]
        return SessionView(
            spec=session.spec,
            status=session.status,
            reason=session.reason,
            message=session.message,
            ended_by=session.ended_by,
            ended_why=session.ended_why,
            created_at=session.created_at,
            updated_at=session.events[-1].at if session.events else session.created_at,
            ended_at=session.ended_at,
            dispatched=True,
            last_event=len(session.events),
            kernels=tuple(session.kernels),
        )

    def events(self, session_id: str) -> list[EventView]:
        """The session's events, in order."""
        return list(self._sessions[session_id].events)

    def log(self, session_id: str, kernel: int) -> LogTailView:
        """What is kept of a kernel's log."""
        return self._sessions[session_id].logs.get(kernel, NOTHING)

    def rooms(self) -> list[AgentRoom]:
        """Every agent with what is free on it."""
        rooms = dict(self._agents)
        for session in self._sessions.values():
            for agent_id in session.held.values():
                rooms[agent_id] = _less(rooms[agent_id], session.spec.resources)
        return [rooms[agent_id] for agent_id in sorted(rooms)]

    async def place(self, request: Place) -> Placement:
        """Choose agents and reserve."""
        session = self._sessions.get(request.session_id)
        if session is None:
            return Placement(never=True, reason=Reason.INTERNAL, message="there is no record of this session")
        if session.held:
            return Placement(agents=tuple(session.held[kernel] for kernel in sorted(session.held)))
        if session.status in FINAL:
            return Placement(never=True, reason=Reason.INTERNAL, message="the session has ended")
        dependencies = [self._dependency(id_) for id_ in session.spec.depends_on]
        hindered = hindrance(session.spec.starts_at, dependencies, datetime.now(UTC))
        if hindered is not None:
            return session.told(hindered)
        choice = choose(wish_of(session.spec), self.rooms(), ahead=self._ahead_of(session))
        if not choice.agents:
            told = session.told(Placement(never=choice.never, reason=choice.reason, message=choice.message))
            return replace(told, woken=self._who_may_fit()) if request.woken else told
        session.held = dict(enumerate(choice.agents))
        for kernel, agent_id in session.held.items():
            session.take(kernel, agent_id=agent_id)
        for from_, to in itertools.pairwise((Status.PENDING, Status.SCHEDULED, Status.PREPARING)):
            why = choice.message if to is Status.SCHEDULED else ""
            for kernel in session.held:
                session.apply(Transition(kernel=kernel, from_status=from_, to_status=to, message=why))
        return Placement(agents=choice.agents)

    async def admit(self, request: Admit) -> Admission:
        """Let a session on to CREATING, or have it wait for its owner's quota."""
        session = self._sessions.get(request.record.session_id)
        if session is None:
            return Admission(admitted=True)
        await self.record(request.record)
        prepared = [kernel.index for kernel in session.kernels if kernel.status is Status.PREPARED]
        if prepared:
            ahead = [one for one in self._waiting_for(session.spec.owner_id) if _turn(one) < _turn(session)]
            if session.spec.session_id not in self._admissible([*ahead, session]):
                session.wait(Reason.QUOTA, "the quota is used up")
                others = self._admissible(self._waiting_for(session.spec.owner_id)) if request.woken else ()
                return Admission(admitted=False, message=session.message, woken=others)
        for kernel in prepared:
            session.apply(Transition(kernel=kernel, from_status=Status.PREPARED, to_status=Status.CREATING))
        return Admission(admitted=True)

    async def record(self, request: Record) -> Freed:
        """Write transitions, facts and notes."""
        session = self._sessions.get(request.session_id)
        if session is None:
            return Freed()
        for step in request.transitions:
            session.apply(step)
        session.give_back()
        for facts in request.facts:
            session.take_facts(facts)
        for note in request.notes:
            session.note(note)
        session.waits += request.pulls
        if any(step.to_status is Status.PENDING or step.from_status in QUOTA_COUNTED for step in request.transitions):
            return Freed(woken=self._admissible(self._waiting_for(session.spec.owner_id)) + self._who_may_fit())
        return Freed()

    async def finish(self, request: Finish) -> Freed:
        """Write the end and free what was held."""
        session = self._sessions.get(request.session_id)
        if session is None:
            return Freed()
        was_final = session.status in FINAL
        actor = request.actor.name if request.actor else None
        for step in request.transitions:
            session.apply(step, actor=actor, from_anywhere=True)
        for exit_ in request.exits:
            session.take_exit(exit_)
        if session.status not in FINAL:
            return Freed()
        if not was_final:
            session.reason, session.message = request.reason, request.message
            session.ended_by, session.ended_why = actor, request.why
            session.give_back()
        admitted = self._admissible(self._waiting_for(session.spec.owner_id))
        dependents = (one.spec for one in self._sessions.values() if one.reason is Reason.DEPENDENCY)
        waiting = tuple(one.session_id for one in dependents if request.session_id in one.depends_on)
        return Freed(woken=admitted + self._who_may_fit() + waiting)

    async def record_agent(self, request: RecordAgent) -> AgentRecorded:
        """Write the agent's presence."""
        facts = request.facts
        known = self._agents.get(facts.agent_id)
        sessions = tuple(
            sorted(one for one, session in self._sessions.items() if facts.agent_id in session.held.values())
        )
        online = request.status is AgentStatus.ONLINE
        if known is not None and not online:
            self._agents[facts.agent_id] = replace(known, online=False)
            return AgentRecorded(sessions=sessions)
        self._agents[facts.agent_id] = AgentRoom(
            agent_id=facts.agent_id,
            platform=facts.platform,
            resource_group=facts.resource_group,
            labels=facts.labels,
            cpu=facts.cpu,
            memory_bytes=facts.memory_bytes,
            gpu=facts.gpu,
            cpu_free=facts.cpu,
            memory_bytes_free=facts.memory_bytes,
            gpu_free=facts.gpu,
            online=online,
        )
        return AgentRecorded(woken=self._who_may_fit() if online else (), sessions=sessions)

    def _waiting(self) -> list[RecordedSession]:
        waiting = [session for session in self._sessions.values() if session.waits_for_room]
        return sorted(waiting, key=_turn)

    def _waiting_for(self, owner_id: str) -> list[RecordedSession]:
        owned = [one for one in self._sessions.values() if one.spec.owner_id == owner_id]
        return sorted((one for one in owned if one.waits_for_quota), key=_turn)

    def _admissible(self, waiting: list[RecordedSession]) -> tuple[str, ...]:
        accounts: dict[str, Account] = {}
        for owner_id, quota in self._quotas.items():
            used = [one.usage for one in self._sessions.values() if one.spec.owner_id == owner_id]
            accounts[owner_id] = Account(
                subject=Subject(kind="user", name=owner_id), quota=quota, used=sum(used, Usage())
            )
        waiters = [
            Waiter(
                session_id=one.spec.session_id,
                usage=usage_of(one.spec.kernels, one.spec.resources),
                keys=tuple({one.spec.owner_id} & accounts.keys()),
            )
            for one in waiting
        ]
        return in_turn(waiters, accounts, limit=_WOKEN_MAX)

    def _dependency(self, session_id: str) -> Dependency:
        session = self._sessions.get(session_id)
        if session is None:
            return Dependency(session_id=session_id, status=None)
        codes = tuple(kernel.exit_code for kernel in session.kernels if kernel.reason is Reason.EXITED)
        return Dependency(session_id=session_id, status=session.status, reason=session.reason, exit_codes=codes)

    def _ahead_of(self, session: RecordedSession) -> list[Wish]:
        return [wish_of(other.spec) for other in self._waiting() if _turn(other) < _turn(session)]

    def _who_may_fit(self) -> tuple[str, ...]:
        waiting = [(session.spec.session_id, wish_of(session.spec)) for session in self._waiting()]
        return who_fits(waiting, self.rooms(), limit=_WOKEN_MAX)


def _turn(session: RecordedSession) -> tuple[bool, int, int]:
    return session.spec.kind is not Kind.INTERACTIVE, -session.spec.priority, session.turn


def _less(room: AgentRoom, each: Resources) -> AgentRoom:
    return replace(
        room,
        cpu_free=room.cpu_free - each.cpu,
        memory_bytes_free=room.memory_bytes_free - each.memory_bytes,
        gpu_free=room.gpu_free - each.gpu,
    )
