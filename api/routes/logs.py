"""A session's logs: from the live container, and from the kept tail after its end."""

import asyncio
import codecs
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from api.dependencies import Parts, TheParts, TheSession
from api.problems import RESPONSES
from towline.domain.containers import LogTail, ReadLogs
from towline.domain.lifecycle import FINAL, Status
from towline.errors import NotFoundError, UnavailableError
from towline.store.sessions import get_log_tail, get_session
from towline.store.views import KernelView, SessionView

router = APIRouter(prefix="/v1/sessions", tags=["logs"], responses=RESPONSES)

_WAIT_SECONDS: Final = 0.3
_LIVE: Final = frozenset({Status.RUNNING, Status.TERMINATING, Status.CREATING})


@router.get(
    "/{session_id}/logs",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/plain": {}}, "description": "stdout and stderr, as they came."}},
)
async def logs(
    view: TheSession,
    parts: TheParts,
    kernel: Annotated[int, Query(ge=0)] = 0,
    tail: Annotated[int | None, Query(ge=0, description="Only the last lines.")] = None,
    follow: bool = False,
) -> StreamingResponse:
    """What a kernel has written. Bytes that are not UTF-8 are replaced. `follow`: until the kernel has ended."""
    if kernel >= len(view.kernels):
        raise NotFoundError(f"the session has no kernel {kernel}")
    text = _decoded(_raw(parts, view, kernel, follow=follow))
    if tail is not None and not follow:
        text = _last_lines(text, tail)
    return StreamingResponse(text, media_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"})


async def _raw(parts: Parts, view: SessionView, kernel: int, *, follow: bool) -> AsyncIterator[bytes]:
    """The log's bytes: live pages while there is a container, then what of the kept tail was not seen live."""
    offset = 0
    while True:
        state = view.kernels[kernel]
        if state.status in _LIVE and state.agent_id is not None:
            async for data, offset_ in _live(parts, view.spec.session_id, state, offset, follow=follow):
                offset = offset_
                yield data
            if not follow and offset:
                return
        kept = await _kept(parts, view.spec.session_id, kernel, offset)
        if kept is not None:
            yield kept
            return
        if not follow or state.status in FINAL:
            return
        await asyncio.sleep(_WAIT_SECONDS)
        view = await _again(parts, view)


async def _live(
    parts: Parts, session_id: str, state: KernelView, offset: int, *, follow: bool
) -> AsyncIterator[tuple[bytes, int]]:
    while True:
        request = ReadLogs(session_id=session_id, kernel=state.index, offset=offset)
        try:
            page = await parts.orchestrator.read_logs(state.agent_id or "", request)
        except UnavailableError:
            return  # The container may have ended, and its tail be kept; the caller looks again.
        data = LogTail(packed=page.packed).data()
        if not page.found or (page.ended and not data) or (not follow and not data):
            return
        offset = page.next_offset
        yield data, offset


async def _kept(parts: Parts, session_id: str, kernel: int, seen_bytes: int) -> bytes | None:
    """What is kept beyond the bytes seen live; None while nothing is kept."""
    async with parts.database.transaction() as tx:
        found = await get_log_tail(tx, session_id, kernel)
    if found is None or found.data is None:
        return None
    begin = found.total_bytes - len(found.data)
    if seen_bytes >= begin:
        return found.data[seen_bytes - begin :]
    missing = begin - seen_bytes
    return f"[towline: {missing} earlier bytes were not kept]\n".encode() + found.data


async def _again(parts: Parts, view: SessionView) -> SessionView:
    async with parts.database.transaction() as tx:
        return await get_session(tx, view.spec.session_id) or view


async def _decoded(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    # A character may be split between two chunks.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


async def _last_lines(chunks: AsyncIterator[str], count: int) -> AsyncIterator[str]:
    text = "".join([chunk async for chunk in chunks])
    lines = text.splitlines(keepends=True)
    yield "".join(lines[len(lines) - count :] if count else [])
