"""A session's events: a page as JSON, or live as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.dependencies import TheParts, TheSession
from api.problems import RESPONSES
from api.schemas.answers import EventPage, event_answer
from api.watch import PING_SECONDS, Watch
from towline.store.sessions import list_events

router = APIRouter(prefix="/v1/sessions", tags=["events"], responses=RESPONSES)


@router.get(
    "/{session_id}/events",
    response_model=EventPage,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "A page, or a stream where that is accepted."}
    },
)
async def events(
    view: TheSession,
    parts: TheParts,
    after: Annotated[int, Query(ge=0, description="Only events with higher numbers.")] = 0,
    accept: Annotated[str, Header()] = "application/json",
    last_event_id: Annotated[int | None, Header(ge=0)] = None,
) -> Any:
    """Numbered transitions and notes. As a stream: those from `after` (or `Last-Event-ID`) on, live, with the progress of
    pulls between them, until the session has ended."""
    since = after if last_event_id is None else last_event_id
    if "text/event-stream" in accept:
        stream = _stream(parts.watch, view.spec.session_id, since)
        return EventSourceResponse(stream, ping=PING_SECONDS, headers={"Cache-Control": "no-store"})
    async with parts.database.transaction() as tx:
        found = await list_events(tx, view.spec.session_id, after=since)
    return EventPage(events=[event_answer(event) for event in found])


async def _stream(watch: Watch, session_id: str, after: int) -> AsyncIterator[ServerSentEvent | bytes]:
    async with watch.viewer(session_id) as watched:
        version, sent = 0, after
        while True:
            version = await watched.changed_since(version)
            for event in [event for event in watched.events if event.seq > sent]:
                data = event_answer(event).model_dump_json()
                yield ServerSentEvent(data, event=event.kind, id=str(event.seq))
                sent = event.seq
            for progress in watched.progress:
                yield progress
            if watched.is_over:
                return
