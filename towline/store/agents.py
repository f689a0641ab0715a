"""Agents, with what is free on them."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.store.ledger import rooms
from towline.store.rows import AgentRow
from towline.store.views import AgentView


async def list_agents(tx: AsyncSession) -> list[AgentView]:
    """Every agent that ever registered, by id."""
    free = {room.agent_id: room for room in await rooms(tx)}
    rows = (await tx.execute(select(AgentRow).order_by(col(AgentRow.id)))).scalars()
    return [
        AgentView(
            id=row.id,
            status=row.status,
            cordoned=row.cordoned,
            cpu=row.cpu,
            memory_bytes=row.memory_bytes,
            gpu=row.gpu,
            cpu_free=round(free[row.id].cpu_free, 6),
            memory_bytes_free=free[row.id].memory_bytes_free,
            gpu_free=free[row.id].gpu_free,
            platform=row.platform,
            engine_version=row.engine_version,
            store_kind=row.store_kind,
            labels=row.labels,
            boot_id=row.boot_id,
            seen_at=row.seen_at,
        )
        for row in rows
    ]


async def get_agent(tx: AsyncSession, agent_id: str) -> AgentView | None:
    """One agent, None where there is none."""
    return next((agent for agent in await list_agents(tx) if agent.id == agent_id), None)
