"""The pulls on the agents, in flight and past."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.dependencies import Caller, Parts, TheCaller, TheParts, TheSuperadmin
from api.live_pulls import PullWatch
from api.problems import RESPONSES
from api.schemas.answers import PullAnswer, PullList
from api.schemas.requests import CancelPullBody
from api.watch import PING_SECONDS
from towline.domain.lifecycle import FINAL
from towline.domain.pulling import PullOutcome, WaitOutcome
from towline.domain.queues import Signal
from towline.domain.sessions import EndRequest
from towline.errors import NotFoundError
from towline.store.sessions import get_session

router = APIRouter(prefix="/v1", tags=["fleet"], responses=RESPONSES)


@router.get(
    "/pulls",
    response_model=PullList,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "A list, or a stream where that is accepted."}
    },
)
async def pulls(
    parts: TheParts,
    caller: TheCaller,
    outcome: PullOutcome | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    accept: Annotated[str, Header()] = "application/json",
) -> Any:
    """Pulls in flight and past, newest first: those that one's own sessions wait for, or all for a superadmin.

    As a stream, those in flight, live: `pulls` has all of them, once, at the beginning; then `progress` has one that is new
    or has changed, and `ended` the account of one that is over. A stream that is opened anew begins with `pulls` again.
    """
    if "text/event-stream" in accept:
        stream = _stream(parts.pull_watch, caller.scope)
        return EventSourceResponse(stream, ping=PING_SECONDS, headers={"Cache-Control": "no-store"})
    return PullList(pulls=await parts.pulls.find(caller.scope, outcome=outcome, limit=limit))


@router.get("/pulls/{pull_id}")
async def pull(pull_id: str, parts: TheParts, caller: TheCaller) -> PullAnswer:
    """One pull: who waits or waited, its progress while it runs, and its account after that."""
    return await _visible(parts, pull_id, caller)


@router.post("/pulls/{pull_id}/cancel", status_code=202)
async def cancel_pull(
    pull_id: str, parts: TheParts, caller: TheSuperadmin, body: CancelPullBody | None = None
) -> PullAnswer:
    """End a pull for everybody: each session that waits for it is force-cancelled, with who and why; the last one out
    aborts the transfer."""
    found = await _visible(parts, pull_id, caller)
    why = f"pull {pull_id} cancelled" + (f": {body.why}" if body and body.why else "")
    request = EndRequest(actor=caller.actor, why=why)
    waiting = [wait.session_id for wait in found.waits if wait.outcome is WaitOutcome.WAITING]
    async with parts.database.transaction() as tx:
        sessions = [view for session_id in waiting if (view := await get_session(tx, session_id)) is not None]
    for session in sessions:
        if session.status not in FINAL:
            await parts.orchestrator.signal(session.spec, Signal.FORCE_CANCEL, request)
    return await _visible(parts, pull_id, caller)


async def _visible(parts: Parts, pull_id: str, caller: Caller) -> PullAnswer:
    found = await parts.pulls.get(pull_id, caller.scope)
    if found is None:
        raise NotFoundError(f"there is no pull {pull_id[:64]!r}")
    return found


async def _stream(watch: PullWatch, scope: str | None) -> AsyncIterator[ServerSentEvent | bytes]:
    async with watch.viewer(scope) as live:
        version = await live.changed_since(0)
        shown = dict(live.running)
        yield ServerSentEvent(PullList(pulls=list(shown.values())).model_dump_json(), event="pulls")
        while True:
            version = await live.changed_since(version)
            running, frames, ended = live.running, live.frames, {pull.id: pull for pull in live.ended}
            for pull_id in shown.keys() - running.keys():
                if pull_id in ended:
                    yield ServerSentEvent(ended[pull_id].model_dump_json(), event="ended")
            for pull_id, found in running.items():
                if shown.get(pull_id) != found:
                    yield frames[pull_id]
            shown = dict(running)
