"""Sessions: create, list, show, end."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from api.dependencies import Caller, Parts, TheCaller, TheParts, TheSession
from api.problems import RESPONSES
from api.schemas.answers import SessionAnswer, SessionPage, session_answer
from api.schemas.fields import IdempotencyKey
from api.schemas.requests import CancelBody, SessionBody, TerminateBody
from towline.domain.ids import new_session_id
from towline.domain.images import ImageRef
from towline.domain.lifecycle import FINAL, Status
from towline.domain.queues import Signal
from towline.domain.quotas import refusals, within
from towline.domain.sessions import EndRequest, Network
from towline.errors import FieldProblem, ForbiddenError, InvalidInputError, NotFoundError, QuotaError
from towline.store.dependencies import refuse_unusable
from towline.store.quotas import lock_accounts, open_book
from towline.store.sessions import SessionFilter, create_session, get_session, list_sessions
from towline.store.views import SessionView

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=RESPONSES)

Key = Annotated[IdempotencyKey | None, Header(alias="Idempotency-Key")]


@router.post("", status_code=201, responses={200: {"model": SessionAnswer, "description": "Made before by this key."}})
async def create(
    body: SessionBody, parts: TheParts, caller: TheCaller, response: Response, idempotency_key: Key = None
) -> SessionAnswer:
    """Ask for a session. With the same `Idempotency-Key` and body, answers the session that was made before."""
    if body.network is Network.HOST and not caller.superadmin:
        raise ForbiddenError("the host network is for superadmins")
    spec = body.spec(session_id=new_session_id(), owner_id=caller.user_id, owner=caller.name)
    async with parts.database.transaction() as tx:
        await lock_accounts(tx, caller.user_id)
        accounts = (await open_book(tx, [caller.user_id])).of(caller.user_id)
        spec = within(spec, accounts)
        session_id, is_new = await create_session(tx, spec, idempotency_key=idempotency_key, body_hash=body.hash())
        # What was made before is answered as it is, whatever the quotas and the dependencies have become since.
        if is_new:
            await refuse_unusable(tx, spec, anybodys=caller.superadmin)
            if over := [found for account in accounts for found in refusals(account, spec)]:
                raise QuotaError(over)
    if is_new:
        await parts.orchestrator.start(spec)  # Where Temporal is away, the dispatcher starts it later.
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/v1/sessions/{session_id}"
    return await _answer(parts, session_id)


@router.get("")
async def list_(
    parts: TheParts,
    caller: TheCaller,
    status: Annotated[list[Status] | None, Query()] = None,
    owner: str | None = None,
    label: Annotated[str | None, Query(description="`key=value`")] = None,
    agent: str | None = None,
    image: str | None = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> SessionPage:
    """Sessions, newest first: one's own, or everybody's for a superadmin."""
    which = SessionFilter(
        owner_id=None if caller.superadmin else caller.user_id,
        owner=owner,
        status=tuple(status or ()),
        image=_canonical(image),
        agent=agent,
        label=_label(label),
    )
    async with parts.database.transaction() as tx:
        views, onward = await list_sessions(tx, which, cursor=cursor, limit=limit)
    return SessionPage(sessions=[session_answer(view) for view in views], next_cursor=onward)


@router.get("/{session_id}")
async def show(view: TheSession, parts: TheParts) -> SessionAnswer:
    """One session, with its pull while there is one."""
    pulls = await parts.progress.of(view.spec.session_id) if view.status is Status.PULLING else {}
    return session_answer(view, pulls)


@router.post("/{session_id}/cancel", status_code=202)
async def cancel(view: TheSession, parts: TheParts, caller: TheCaller, body: CancelBody | None = None) -> SessionAnswer:
    """End a session; before RUNNING it becomes CANCELLED. Doing it twice is the same as once.

    With `force` the end is shown at once and the clean-up goes on behind it: for one's own session, or by a superadmin.
    """
    asked = body or CancelBody()
    signal = Signal.FORCE_CANCEL if asked.force else Signal.CANCEL
    return await _end(view, parts, caller, signal, asked.why)


@router.post("/{session_id}/terminate", status_code=202)
async def terminate(
    view: TheSession, parts: TheParts, caller: TheCaller, body: TerminateBody | None = None
) -> SessionAnswer:
    """Stop a running session with grace. Doing it twice is the same as once."""
    return await _end(view, parts, caller, Signal.TERMINATE, body.why if body else "")


async def _end(view: SessionView, parts: Parts, caller: Caller, signal: Signal, why: str) -> SessionAnswer:
    if view.status not in FINAL:
        await parts.orchestrator.signal(view.spec, signal, EndRequest(actor=caller.actor, why=why))
    return await _answer(parts, view.spec.session_id)


async def _answer(parts: Parts, session_id: str) -> SessionAnswer:
    async with parts.database.transaction() as tx:
        view = await get_session(tx, session_id)
    if view is None:
        raise NotFoundError(f"there is no session {session_id}")
    return session_answer(view)


def _canonical(image: str | None) -> str | None:
    return None if image is None else str(ImageRef.parse(image))


def _label(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, equals, value = text.partition("=")
    if not key or not equals:
        problem = "give a label as key=value"
        raise InvalidInputError(problem, fields=(FieldProblem(field="label", problem=problem),))
    return key, value
