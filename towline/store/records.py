"""The control worker's records, in Postgres."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.agents import AgentRecorded, AgentStatus, RecordAgent
from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import FINAL, QUOTA_COUNTED, Reason, Status, Transition
from towline.domain.placement import Choice, choose
from towline.domain.preconditions import hindrance
from towline.domain.records import Abandon, Admission, Admit, Finish, Freed, KernelFacts, Place, Placement, Record
from towline.store.agents import record_presence
from towline.store.database import Database
from towline.store.dependencies import dependencies_of, dependents_of
from towline.store.journal import Journal
from towline.store.ledger import (
    GIVES_BACK,
    ahead_of,
    give_back,
    held_by,
    is_overdue,
    lock_placement,
    reserve,
    rooms,
    sessions_on,
    who_may_fit,
)
from towline.store.pulls import leave_all, record_waits
from towline.store.quotas import admissible, lock_accounts, shortage
from towline.store.rows import KernelRow, SessionRow, utc_now
from towline.store.specs import spec_of, wish_of


class StoreRecords:
    """Satisfies the Protocol `Records` of the activities. Each method writes in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Whoever waits for the turn to place waits here, and not with a connection in hand that others need.
        self._placing = asyncio.Lock()

    async def place(self, request: Place) -> Placement:
        """Choose agents and reserve. Asked again after a success, answers the same."""
        async with self._placing, self._database.transaction() as tx:
            await lock_placement(tx)
            journal = await Journal.open(tx, request.session_id)
            if journal is None:
                return Placement(never=True, reason=Reason.INTERNAL, message="there is no record of this session")
            if journal.session.status != Status.PENDING:
                held = await held_by(tx, request.session_id)
                if held:
                    return await _placed(tx, journal, tuple(row.agent_id for row in held))
            if journal.is_final:
                return Placement(never=True, reason=Reason.INTERNAL, message="the session has ended")
            spec = spec_of(journal.session)
            hindered = hindrance(spec.starts_at, await dependencies_of(tx, spec), utc_now())
            if hindered is not None:
                return await _told_to_wait(tx, journal, hindered)
            ahead = await ahead_of(tx, journal.session)
            choice = choose(wish_of(spec), await rooms(tx), ahead=ahead)
            if not choice.agents:
                refused = Placement(never=choice.never, reason=choice.reason, message=choice.message)
                return await _told_to_wait(tx, journal, refused, was_woken=request.woken)
            reserve(tx, request.session_id, choice.agents, spec.resources)
            _schedule(journal, choice)
            await journal.announce()
            return await _placed(tx, journal, choice.agents)

    async def admit(self, request: Admit) -> Admission:
        """Let a session on to CREATING, or have it wait for its owner's quotas. Asked again after a success, answers the same."""
        session_id = request.record.session_id
        async with self._database.transaction() as tx:
            owner = select(col(SessionRow.owner_id)).where(col(SessionRow.id) == session_id)
            await lock_accounts(tx, (await tx.execute(owner)).scalar() or "")
            journal = await Journal.open(tx, session_id)
            if journal is None:
                return Admission(admitted=True)
            await _write(tx, journal, request.record)
            prepared = [index for index, kernel in journal.kernels.items() if kernel.status == Status.PREPARED]
            if prepared and (message := await shortage(tx, journal.session)):
                journal.wait(Reason.QUOTA, message)
                await journal.announce()
                # As with room on agents: others may fit into what it was woken for.
                woken = await admissible(tx, journal.session.owner_id) if request.woken else ()
                return Admission(admitted=False, message=message, woken=woken)
            for index in prepared:
                journal.apply(Transition(kernel=index, from_status=Status.PREPARED, to_status=Status.CREATING))
            await journal.announce()
        return Admission(admitted=True)

    async def record(self, request: Record) -> Freed:
        """Write transitions, facts and notes; what is written already is passed over."""
        async with self._database.transaction() as tx:
            journal = await Journal.open(tx, request.session_id)
            if journal is None:
                return Freed()
            await _write(tx, journal, request)
            await journal.announce()
        # Also when this is a repetition: the first answer may never have arrived.
        return Freed(woken=await self._woken_by(journal.session)) if _frees(request.transitions) else Freed()

    async def finish(self, request: Finish) -> Freed:
        """Write the end and free what was held, once. Exits that were not known yet are added, also later."""
        async with self._database.transaction() as tx:
            journal = await Journal.open(tx, request.session_id)
            if journal is None:
                return Freed()
            was_final = journal.is_final
            actor = request.actor.name if request.actor else None
            for step in request.transitions:
                journal.end(step, actor=actor)
            for exit_ in request.exits:
                _take_exit(journal.kernels.get(exit_.kernel), exit_)
            if journal.is_final and not was_final:
                session = journal.session
                session.reason, session.message = request.reason, request.message
                session.ended_by, session.ended_why = actor, request.why
                await give_back(tx, journal)
            await journal.announce()
        # Also when this is a repetition: the first answer may never have arrived.
        return Freed(woken=await self._woken_by(journal.session)) if journal.is_final else Freed()

    async def abandon(self, request: Abandon) -> Freed:
        """Write the end of a session whose workflow will not do it any more. One that has ended is left as it is."""
        async with self._database.transaction() as tx:
            journal = await Journal.open(tx, request.session_id)
            if journal is None or journal.is_final:
                return Freed()
            for index, kernel in journal.kernels.items():
                if (current := Status(kernel.status)) not in FINAL:
                    journal.apply(
                        Transition(
                            kernel=index,
                            from_status=current,
                            to_status=Status.ERROR,
                            reason=Reason.WORKFLOW_LOST,
                            message=request.message,
                        )
                    )
            journal.session.reason, journal.session.message = Reason.WORKFLOW_LOST, request.message
            await leave_all(tx, request.session_id)
            await give_back(tx, journal)
            await journal.announce()
        return Freed(woken=await self._woken_by(journal.session))

    async def record_agent(self, request: RecordAgent) -> AgentRecorded:
        """Write the agent's presence."""
        async with self._placing, self._database.transaction() as tx:
            # No session is placed meanwhile: one that is not among those on the agent has seen what is written here.
            await lock_placement(tx)
            await record_presence(tx, request)
            sessions = await sessions_on(tx, request.facts.agent_id)
        woken = await self._who_may_fit() if request.status is AgentStatus.ONLINE else ()
        return AgentRecorded(woken=woken, sessions=sessions)

    async def _woken_by(self, session: SessionRow) -> tuple[str, ...]:
        """Who may go on, now that this session has ended or has given something back."""
        async with self._database.transaction() as tx:
            await lock_accounts(tx, session.owner_id)
            admitted = await admissible(tx, session.owner_id)
        return admitted + await self._who_may_fit(session.id if session.status in FINAL else None)

    async def _who_may_fit(self, ended_id: str | None = None) -> tuple[str, ...]:
        async with self._placing, self._database.transaction() as tx:
            await lock_placement(tx)
            dependents = await dependents_of(tx, ended_id) if ended_id else ()
            return await who_may_fit(tx) + dependents


async def _placed(tx: AsyncSession, journal: Journal, agents: tuple[str, ...]) -> Placement:
    return Placement(agents=agents, woken=await who_may_fit(tx) if is_overdue(journal.session) else ())


async def _told_to_wait(
    tx: AsyncSession, journal: Journal, placement: Placement, *, was_woken: bool = False
) -> Placement:
    if placement.never:
        return placement
    is_news = journal.wait(placement.reason, placement.message)
    await journal.announce()
    # The room that it was woken for went to one whose turn is before its own, and others may fit into what is left of it. And one
    # that is overdue may have room kept for it now, that was kept for another.
    is_first_look = is_news and placement.reason is Reason.NO_CAPACITY
    if was_woken or (is_first_look and is_overdue(journal.session)):
        return replace(placement, woken=await who_may_fit(tx))
    return placement


async def _write(tx: AsyncSession, journal: Journal, record: Record) -> None:
    for step in record.transitions:
        journal.apply(step)
    _forget_places(journal, record.transitions)
    if _frees(record.transitions):
        await give_back(tx, journal)
    for facts in record.facts:
        _take_facts(journal.kernels.get(facts.kernel), facts)
    for note in record.notes:
        await journal.note(note)
    await record_waits(tx, record.session_id, record.pulls)


def _frees(steps: Sequence[Transition]) -> bool:
    """Whether others may get on after these steps: a place is given back, or does not count against a quota any more."""
    return any(
        step.to_status in GIVES_BACK or (step.from_status in QUOTA_COUNTED and step.to_status not in QUOTA_COUNTED)
        for step in steps
    )


def _forget_places(journal: Journal, steps: Sequence[Transition]) -> None:
    """What is placed anew has no agent meanwhile, and no container."""
    for kernel in (journal.kernels.get(step.kernel) for step in steps if step.to_status is Status.PENDING):
        if kernel is not None and kernel.status == Status.PENDING:
            kernel.agent_id = kernel.container_id = kernel.started_at = None
            kernel.ports = {}


def _schedule(journal: Journal, choice: Choice) -> None:
    for kernel, agent_id in enumerate(choice.agents):
        journal.kernels[kernel].agent_id = agent_id
    for from_, to, why in (
        (Status.PENDING, Status.SCHEDULED, choice.message),
        (Status.SCHEDULED, Status.PREPARING, ""),
    ):
        for kernel in range(len(choice.agents)):
            journal.apply(Transition(kernel=kernel, from_status=from_, to_status=to, message=why))


def _take_facts(kernel: KernelRow | None, facts: KernelFacts) -> None:
    if kernel is None:
        return
    for name in ("digest", "stale", "container_id", "started_at"):
        value = getattr(facts, name)
        if value is not None:
            setattr(kernel, name, value)
    if facts.ports is not None:
        kernel.ports = {port: list(published) for port, published in facts.ports.items()}


def _take_exit(kernel: KernelRow | None, exit_: ContainerExit) -> None:
    """Fill in what is not known yet."""
    if kernel is None:
        return
    if kernel.exit_code is None:
        kernel.exit_code, kernel.oom_killed = exit_.exit_code, exit_.oom_killed
    if kernel.container_id is None:
        kernel.container_id = exit_.container_id
    if not kernel.log_total_bytes:
        kernel.log_tail = exit_.log.data()
        kernel.log_total_bytes = exit_.log.total_bytes
        kernel.log_truncated = exit_.log.truncated
