"""Agents, and the pulls in flight on them."""

import asyncio

from fastapi import APIRouter

from api.dependencies import Caller, Parts, TheCaller, TheParts
from api.problems import RESPONSES
from api.schemas.answers import AgentAnswer, AgentList, PullAnswer, PullList
from towline.domain.lifecycle import Status
from towline.domain.progress import PullProgress
from towline.errors import NotFoundError
from towline.store.agents import get_agent, list_agents
from towline.store.sessions import SessionFilter, list_sessions

router = APIRouter(prefix="/v1", tags=["fleet"], responses=RESPONSES)


@router.get("/agents")
async def agents(parts: TheParts, _: TheCaller) -> AgentList:
    """Every agent."""
    async with parts.database.transaction() as tx:
        found = await list_agents(tx)
    return AgentList(agents=[AgentAnswer.model_validate(agent) for agent in found])


@router.get("/agents/{agent_id}")
async def agent(agent_id: str, parts: TheParts, _: TheCaller) -> AgentAnswer:
    """One agent."""
    async with parts.database.transaction() as tx:
        found = await get_agent(tx, agent_id)
    if found is None:
        raise NotFoundError(f"there is no agent {agent_id[:64]!r}")
    return AgentAnswer.model_validate(found)


@router.get("/pulls")
async def pulls(parts: TheParts, caller: TheCaller) -> PullList:
    """Pulls in flight, with the sessions that wait for them: one's own, or everybody's for a superadmin."""
    return PullList(pulls=await _in_flight(parts, caller))


@router.get("/pulls/{pull_id}")
async def pull(pull_id: str, parts: TheParts, caller: TheCaller) -> PullAnswer:
    """One pull in flight."""
    found = next((one for one in await _in_flight(parts, caller) if one.pull.pull_id == pull_id), None)
    if found is None:
        raise NotFoundError(f"there is no pull {pull_id[:64]!r} in flight")
    return found


async def _in_flight(parts: Parts, caller: Caller) -> list[PullAnswer]:
    which = SessionFilter(owner_id=None if caller.superadmin else caller.user_id, status=(Status.PULLING,))
    async with parts.database.transaction() as tx:
        sessions, _ = await list_sessions(tx, which, cursor=None, limit=200)
    ids = [view.spec.session_id for view in sessions]
    live = await asyncio.gather(*(parts.orchestrator.pulls(session_id) for session_id in ids))
    found: dict[str, tuple[PullProgress, list[str]]] = {}
    for session_id, by_agent in zip(ids, live, strict=True):
        for progress in by_agent.values():
            newest, waiting = found.get(progress.pull_id, (progress, []))
            newer = progress if progress.updated_at > newest.updated_at else newest
            found[progress.pull_id] = (newer, [*waiting, session_id])
    return [PullAnswer(pull=progress, sessions=waiting) for progress, waiting in found.values()]
