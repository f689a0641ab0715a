"""Agents: what they are, and whether they take work."""

from datetime import UTC, datetime, timedelta

from fastapi import APIRouter

from api.dependencies import Parts, TheCaller, TheParts, TheSuperadmin
from api.problems import RESPONSES
from api.schemas.answers import AgentAnswer, AgentList, LedgerDrift
from api.schemas.requests import CordonBody, DrainBody
from towline.domain.agents import Drain
from towline.errors import NotFoundError
from towline.store.agents import close_agent, get_agent, list_agents, open_agent
from towline.store.audit import drift

router = APIRouter(prefix="/v1", tags=["fleet"], responses=RESPONSES)


@router.get("/agents")
async def agents(parts: TheParts, _: TheCaller) -> AgentList:
    """Every agent."""
    async with parts.database.transaction() as tx:
        found = await list_agents(tx)
    return AgentList(agents=[AgentAnswer.model_validate(agent) for agent in found])


@router.get("/ledger/drift")
async def ledger_drift(parts: TheParts, _: TheSuperadmin) -> LedgerDrift:
    """Where the ledger and the kernels differ."""
    async with parts.database.transaction() as tx:
        return LedgerDrift(drift=await drift(tx))


@router.get("/agents/{agent_id}")
async def agent(agent_id: str, parts: TheParts, _: TheCaller) -> AgentAnswer:
    """One agent."""
    return await _shown(parts, agent_id)


@router.post("/agents/{agent_id}/cordon")
async def cordon(agent_id: str, parts: TheParts, caller: TheSuperadmin, body: CordonBody | None = None) -> AgentAnswer:
    """No new work for the agent. What is there stays."""
    why = body.why if body else ""
    async with parts.database.transaction() as tx:
        _refuse_unknown(await close_agent(tx, agent_id, actor=caller.name, why=why, drain=False, until=None), agent_id)
    return await _shown(parts, agent_id)


@router.post("/agents/{agent_id}/drain", status_code=202)
async def drain(agent_id: str, parts: TheParts, caller: TheSuperadmin, body: DrainBody | None = None) -> AgentAnswer:
    """No new work for the agent, and nobody stays: sessions that do not run yet are placed elsewhere at once; those that run
    may come to their end, until the deadline if there is one."""
    body = body or DrainBody()
    until = None if body.deadline is None else datetime.now(UTC) + timedelta(seconds=body.deadline)
    async with parts.database.transaction() as tx:
        _refuse_unknown(
            await close_agent(tx, agent_id, actor=caller.name, why=body.why, drain=True, until=until), agent_id
        )
    await parts.orchestrator.order(agent_id, Drain(actor=caller.actor, why=body.why, deadline=until))
    return await _shown(parts, agent_id)


@router.post("/agents/{agent_id}/uncordon", status_code=202)
async def uncordon(
    agent_id: str, parts: TheParts, caller: TheSuperadmin, body: CordonBody | None = None
) -> AgentAnswer:
    """The agent takes new work again; a drain is called off. Sessions that wait for it try again."""
    async with parts.database.transaction() as tx:
        _refuse_unknown(await open_agent(tx, agent_id, actor=caller.name, why=body.why if body else ""), agent_id)
    await parts.orchestrator.order(agent_id, None)
    return await _shown(parts, agent_id)


async def _shown(parts: Parts, agent_id: str) -> AgentAnswer:
    async with parts.database.transaction() as tx:
        found = await get_agent(tx, agent_id)
    _refuse_unknown(found is not None, agent_id)
    return AgentAnswer.model_validate(found)


def _refuse_unknown(is_known: bool, agent_id: str) -> None:
    if not is_known:
        raise NotFoundError(f"there is no agent {agent_id[:64]!r}")
