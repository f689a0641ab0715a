"""The pulls on the agents, in flight and past."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import Caller, Parts, TheCaller, TheParts, TheSuperadmin
from api.problems import RESPONSES
from api.schemas.answers import PullAnswer, PullList
from api.schemas.requests import CancelPullBody
from towline.domain.lifecycle import FINAL
from towline.domain.progress import PullProgress
from towline.domain.pulling import PullOutcome, WaitOutcome
from towline.domain.queues import Signal
from towline.domain.sessions import EndRequest
from towline.errors import NotFoundError
from towline.store.pulls import get_pull, list_pulls
from towline.store.sessions import get_session
from towline.store.views import PullView

router = APIRouter(prefix="/v1", tags=["fleet"], responses=RESPONSES)


@router.get("/pulls")
async def pulls(
    parts: TheParts,
    caller: TheCaller,
    outcome: PullOutcome | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> PullList:
    """Pulls in flight and past, newest first: those that one's own sessions wait for, or all for a superadmin."""
    async with parts.database.transaction() as tx:
        views = await list_pulls(tx, owner_id=caller.scope, outcome=outcome, limit=limit)
    return PullList(pulls=await _with_progress(parts, views))


@router.get("/pulls/{pull_id}")
async def pull(pull_id: str, parts: TheParts, caller: TheCaller) -> PullAnswer:
    """One pull: who waits or waited, its progress while it runs, and its account after that."""
    [answer] = await _with_progress(parts, [await _visible(parts, pull_id, caller)])
    return answer


@router.post("/pulls/{pull_id}/cancel", status_code=202)
async def cancel_pull(
    pull_id: str, parts: TheParts, caller: TheSuperadmin, body: CancelPullBody | None = None
) -> PullAnswer:
    """End a pull for everybody: each session that waits for it is force-cancelled, with who and why; the last one out
    aborts the transfer."""
    view = await _visible(parts, pull_id, caller)
    why = f"pull {pull_id} cancelled" + (f": {body.why}" if body and body.why else "")
    request = EndRequest(actor=caller.actor, why=why)
    waiting = [wait.session_id for wait in view.waits if wait.outcome is WaitOutcome.WAITING]
    async with parts.database.transaction() as tx:
        sessions = [found for session_id in waiting if (found := await get_session(tx, session_id)) is not None]
    for session in sessions:
        if session.status not in FINAL:
            await parts.orchestrator.signal(session.spec, Signal.FORCE_CANCEL, request)
    [answer] = await _with_progress(parts, [await _visible(parts, pull_id, caller)])
    return answer


async def _visible(parts: Parts, pull_id: str, caller: Caller) -> PullView:
    async with parts.database.transaction() as tx:
        view = await get_pull(tx, pull_id, owner_id=caller.scope)
    if view is None:
        raise NotFoundError(f"there is no pull {pull_id[:64]!r}")
    return view


async def _with_progress(parts: Parts, views: Sequence[PullView]) -> list[PullAnswer]:
    """The views with what the heartbeats of one of their waiters say."""
    running = [view for view in views if view.outcome is PullOutcome.RUNNING]
    live = await asyncio.gather(*(_progress_of(parts, view) for view in running))
    progress = {view.id: found for view, found in zip(running, live, strict=True)}
    return [PullAnswer.model_validate(view).model_copy(update={"progress": progress.get(view.id)}) for view in views]


async def _progress_of(parts: Parts, view: PullView) -> PullProgress | None:
    for wait in view.waits:
        if wait.outcome is WaitOutcome.WAITING:
            found = (await parts.orchestrator.pulls(wait.session_id)).get(view.agent_id)
            if found is not None and found.pull_id == view.id:
                return found
    return None
