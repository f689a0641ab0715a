"""Agents, with what is free on them, and their past."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.agents import AgentEvent, AgentStatus, RecordAgent
from towline.domain.placement import AgentRoom
from towline.store.ledger import lock_placement, rooms
from towline.store.rows import AgentEventRow, AgentRow, utc_now
from towline.store.views import AgentEventView, AgentView

_EVENT_OF: Final = {
    AgentStatus.ONLINE: AgentEvent.ONLINE,
    AgentStatus.ENGINE_DOWN: AgentEvent.ENGINE_DOWN,
    AgentStatus.LOST: AgentEvent.LOST,
}
_EVENTS_SHOWN: Final = 20


async def list_agents(tx: AsyncSession) -> list[AgentView]:
    """Every agent that ever registered, by id."""
    free = {room.agent_id: room for room in await rooms(tx)}
    rows = (await tx.execute(select(AgentRow).order_by(col(AgentRow.id)))).scalars()
    return [_view(row, free[row.id]) for row in rows]


async def get_agent(tx: AsyncSession, agent_id: str) -> AgentView | None:
    """One agent with its newest events, None where there is none."""
    row = await tx.get(AgentRow, agent_id)
    if row is None:
        return None
    events = (
        select(AgentEventRow)
        .where(col(AgentEventRow.agent_id) == agent_id)
        .order_by(col(AgentEventRow.id).desc())
        .limit(_EVENTS_SHOWN)
    )
    [room] = [room for room in await rooms(tx) if room.agent_id == agent_id]
    return _view(row, room, list((await tx.execute(events)).scalars()))


async def record_presence(tx: AsyncSession, request: RecordAgent) -> None:
    """Write what an agent says, and how it is; a change is an event. What is said counts only while it is ONLINE."""
    facts = request.facts
    row = await tx.get(AgentRow, facts.agent_id, with_for_update=True)
    if row is None:
        row = AgentRow(id=facts.agent_id, boot_id="", status="", cpu=0.0, memory_bytes=0)
        tx.add(row)
    is_new = (row.status, row.boot_id) != (request.status, facts.boot_id)
    row.status, row.message = request.status, request.message
    if request.status is AgentStatus.ONLINE or not row.boot_id:
        _take_facts(row, request)
    await tx.flush()
    if is_new:
        said = f"{facts.cpu:g} cores, {facts.memory_bytes} bytes, {facts.gpu} GPUs; boot {facts.boot_id}"
        message = said if request.status is AgentStatus.ONLINE else request.message
        tx.add(AgentEventRow(agent_id=row.id, kind=_EVENT_OF[request.status], message=message))


async def close_agent(
    tx: AsyncSession, agent_id: str, *, actor: str, why: str, drain: bool, until: datetime | None
) -> bool:
    """No new work for the agent; with `drain` nobody shall stay, from `until` on at the latest. False: there is none."""
    event = AgentEvent.DRAINING if drain else AgentEvent.CORDONED
    row = await _mark(tx, agent_id, event, actor=actor, why=why)
    if row is None:
        return False
    row.cordoned = True
    if drain:
        row.draining, row.drain_deadline = True, until
    return True


async def open_agent(tx: AsyncSession, agent_id: str, *, actor: str, why: str) -> bool:
    """The agent takes new work again, and is not drained any more. False: there is none."""
    row = await _mark(tx, agent_id, AgentEvent.UNCORDONED, actor=actor, why=why)
    if row is None:
        return False
    row.cordoned, row.draining, row.drain_deadline = False, False, None
    return True


async def _mark(tx: AsyncSession, agent_id: str, event: AgentEvent, *, actor: str, why: str) -> AgentRow | None:
    # Whoever is placed before this is known to be there, and whoever is placed after it has seen it.
    await lock_placement(tx)
    row = await tx.get(AgentRow, agent_id, with_for_update=True)
    if row is not None:
        tx.add(AgentEventRow(agent_id=agent_id, kind=event, message=why, actor=actor))
    return row


def _take_facts(row: AgentRow, request: RecordAgent) -> None:
    facts = request.facts
    row.boot_id, row.cpu, row.memory_bytes, row.gpu = facts.boot_id, facts.cpu, facts.memory_bytes, facts.gpu
    row.platform, row.engine_version, row.store_kind = facts.platform, facts.engine_version, facts.store_kind
    row.labels, row.resource_group, row.seen_at = facts.labels, facts.resource_group, utc_now()


def _view(row: AgentRow, room: AgentRoom, events: Sequence[AgentEventRow] = ()) -> AgentView:
    return AgentView(
        id=row.id,
        status=AgentStatus(row.status),
        message=row.message,
        cordoned=row.cordoned,
        draining=row.draining,
        drain_deadline=row.drain_deadline,
        cpu=row.cpu,
        memory_bytes=row.memory_bytes,
        gpu=row.gpu,
        cpu_free=round(room.cpu_free, 6),
        memory_bytes_free=room.memory_bytes_free,
        gpu_free=room.gpu_free,
        platform=row.platform,
        engine_version=row.engine_version,
        store_kind=row.store_kind,
        labels=row.labels,
        resource_group=row.resource_group,
        boot_id=row.boot_id,
        seen_at=row.seen_at,
        events=tuple(
            AgentEventView(at=event.at, kind=AgentEvent(event.kind), message=event.message, actor=event.actor)
            for event in events
        ),
    )
