"""The control worker's records, in Postgres."""

from typing import Final

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import Reason, Status, Transition
from towline.domain.placement import AgentRoom, Choice, Wish, choose
from towline.domain.records import Finish, Finished, KernelFacts, Place, Placement, Record, RecordAgent
from towline.store.database import Database
from towline.store.journal import Journal
from towline.store.pulls import record_wait
from towline.store.rows import AgentRow, KernelRow, LedgerRow, SessionRow, utc_now
from towline.store.specs import spec_of

_PLACEMENT_LOCK: Final = 0x746F776C
"""Advisory lock: one placement at a time, so that two never count on the same room."""

_WOKEN_MAX: Final = 20


class StoreRecords:
    """Satisfies the Protocol `Records` of the activities. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def place(self, request: Place) -> Placement:
        """Choose agents and reserve. Asked again after a success, answers the same."""
        async with self._database.transaction() as tx:
            await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PLACEMENT_LOCK})
            journal = await Journal.open(tx, request.session_id)
            if journal is None:
                return Placement(never=True, reason=Reason.INTERNAL, message="there is no record of this session")
            held = await _held(tx, request.session_id)
            if held:
                return Placement(agents=tuple(row.agent_id for row in held))
            if journal.is_final:
                return Placement(never=True, reason=Reason.INTERNAL, message="the session has ended")
            choice = await self._choose(tx, journal.session)
            if not choice.agents:
                _wait(journal, choice)
                await journal.announce()
                return Placement(never=choice.never, reason=choice.reason, message=choice.message)
            _reserve(tx, journal, choice)
            await journal.announce()
            return Placement(agents=choice.agents)

    async def record(self, request: Record) -> None:
        """Write transitions, facts and notes; what is written already is passed over."""
        async with self._database.transaction() as tx:
            journal = await Journal.open(tx, request.session_id)
            if journal is None:
                return
            for step in request.transitions:
                journal.apply(step)
            for facts in request.facts:
                _take_facts(journal.kernels.get(facts.kernel), facts)
            for note in request.notes:
                await journal.note(note)
            for wait in request.pulls:
                await record_wait(tx, request.session_id, wait)
            await journal.announce()

    async def finish(self, request: Finish) -> Finished:
        """Write the end and free what was held, once. Exits that were not known yet are added, also later."""
        async with self._database.transaction() as tx:
            journal = await Journal.open(tx, request.session_id)
            if journal is None:
                return Finished()
            was_final = journal.is_final
            actor = request.actor.name if request.actor else None
            for step in request.transitions:
                journal.apply(step, actor=actor)
            for exit_ in request.exits:
                _take_exit(journal.kernels.get(exit_.kernel), exit_)
            if was_final or not journal.is_final:
                await journal.announce()
                return Finished()
            session = journal.session
            session.reason, session.message = request.reason, request.message
            session.ended_by, session.ended_why, session.ended_at = actor, request.why, utc_now()
            for row in await _held(tx, request.session_id):
                row.freed_at = utc_now()
            await journal.announce()
            return Finished(woken=await _waiting(tx))

    async def record_agent(self, request: RecordAgent) -> Finished:
        """Write the agent's presence."""
        facts = request.facts
        async with self._database.transaction() as tx:
            row = await tx.get(AgentRow, facts.agent_id, with_for_update=True)
            if row is None:
                row = AgentRow(id=facts.agent_id, boot_id="", status="LOST", cpu=0.0, memory_bytes=0)
                tx.add(row)
            row.status = "ONLINE" if request.online else "LOST"
            row.boot_id = facts.boot_id
            row.cpu, row.memory_bytes, row.gpu = facts.cpu, facts.memory_bytes, facts.gpu
            row.platform, row.engine_version, row.store_kind = facts.platform, facts.engine_version, facts.store_kind
            row.labels, row.seen_at = facts.labels, utc_now()
            return Finished(woken=await _waiting(tx) if request.online else ())

    async def _choose(self, tx: AsyncSession, session: SessionRow) -> Choice:
        spec = spec_of(session)
        wish = Wish(
            kernels=spec.kernels,
            resources=spec.resources,
            platform=spec.platform,
            agent=spec.agent,
            cluster_mode=spec.cluster_mode,
        )
        return choose(wish, await rooms(tx))


async def rooms(tx: AsyncSession) -> list[AgentRoom]:
    """Every agent with what is free on it: its capacity less the sum of the ledger's rows."""
    held = select(
        col(LedgerRow.agent_id),
        func.sum(LedgerRow.cpu),
        func.sum(LedgerRow.memory_bytes),
        func.sum(LedgerRow.gpu),
    ).where(col(LedgerRow.freed_at).is_(None))
    sums = {row[0]: row[1:] for row in await tx.execute(held.group_by(col(LedgerRow.agent_id)))}
    agents = (await tx.execute(select(AgentRow).order_by(col(AgentRow.id)))).scalars()
    return [_room(agent, *sums.get(agent.id, (0.0, 0, 0))) for agent in agents]


def _room(agent: AgentRow, cpu: float, memory_bytes: int, gpu: int) -> AgentRoom:
    return AgentRoom(
        agent_id=agent.id,
        platform=agent.platform,
        cpu=agent.cpu,
        memory_bytes=agent.memory_bytes,
        gpu=agent.gpu,
        cpu_free=agent.cpu - float(cpu),
        memory_bytes_free=agent.memory_bytes - int(memory_bytes),
        gpu_free=agent.gpu - int(gpu),
        online=agent.status == "ONLINE",
        cordoned=agent.cordoned,
    )


async def _held(tx: AsyncSession, session_id: str) -> list[LedgerRow]:
    query = (
        select(LedgerRow)
        .where(col(LedgerRow.session_id) == session_id, col(LedgerRow.freed_at).is_(None))
        .order_by(col(LedgerRow.kernel))
    )
    return list((await tx.execute(query)).scalars())


async def _waiting(tx: AsyncSession) -> tuple[str, ...]:
    """Sessions that wait for capacity, in the order in which they shall try again: by priority, then by age."""
    query = (
        select(col(SessionRow.id))
        .where(col(SessionRow.status) == Status.PENDING, col(SessionRow.dispatched_at).is_not(None))
        .order_by(col(SessionRow.priority).desc(), col(SessionRow.created_at))
        .limit(_WOKEN_MAX)
    )
    return tuple((await tx.execute(query)).scalars())


def _wait(journal: Journal, choice: Choice) -> None:
    session = journal.session
    session.reason, session.message, session.updated_at = choice.reason, choice.message, utc_now()


def _reserve(tx: AsyncSession, journal: Journal, choice: Choice) -> None:
    resources = spec_of(journal.session).resources
    for kernel, agent_id in enumerate(choice.agents):
        tx.add(
            LedgerRow(
                session_id=journal.session.id,
                kernel=kernel,
                agent_id=agent_id,
                cpu=resources.cpu,
                memory_bytes=resources.memory_bytes,
                gpu=resources.gpu,
            )
        )
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
    if kernel is None or kernel.log_tail is not None:
        return
    kernel.exit_code = exit_.exit_code if kernel.exit_code is None else kernel.exit_code
    kernel.oom_killed = kernel.oom_killed or exit_.oom_killed
    kernel.log_tail = exit_.log.data()
    kernel.log_total_bytes = exit_.log.total_bytes
    kernel.log_truncated = exit_.log.truncated
