"""Quotas: what users, and the users of a project together, may have."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Response

from api.dependencies import Parts, TheCaller, TheParts, TheSuperadmin
from api.problems import RESPONSES
from api.schemas.quotas import QuotaAnswer, QuotaBody, QuotaList, quota_answer
from towline.domain.quotas import Subject
from towline.errors import FieldProblem, InvalidInputError
from towline.store.quotas import admissible, list_quotas, open_book, remove_quota, set_quota

router = APIRouter(prefix="/v1", tags=["quotas"], responses=RESPONSES)


@router.get("/me/quotas")
async def mine(parts: TheParts, caller: TheCaller) -> QuotaList:
    """The quotas that one's own sessions count against."""
    async with parts.database.transaction() as tx:
        book = await open_book(tx, [caller.user_id])
    return QuotaList(quotas=[quota_answer(account) for account in book.of(caller.user_id)])


@router.get("/quotas")
async def all_(parts: TheParts, _: TheSuperadmin) -> QuotaList:
    """Every quota, and what is used of it."""
    async with parts.database.transaction() as tx:
        accounts = await list_quotas(tx)
    return QuotaList(quotas=[quota_answer(account) for account in accounts])


def _subject(kind: Literal["user", "project"], name: str) -> Subject:
    if kind == "project" and name == "*":
        problem = "a quota of all projects there is not; name one"
        raise InvalidInputError(problem, fields=(FieldProblem(field="name", problem=problem),))
    return Subject(kind=kind, name=name)


TheSubject = Annotated[Subject, Depends(_subject, scope="function")]


@router.put("/quotas/{kind}/{name}")
async def put(subject: TheSubject, body: QuotaBody, parts: TheParts, _: TheSuperadmin) -> QuotaAnswer:
    """Set all limits of a user, of every user without limits of their own (`*`), or of a project. What runs already goes on."""
    async with parts.database.transaction() as tx:
        await set_quota(tx, subject, body.quota())
        account = next(one for one in await list_quotas(tx) if one.subject == subject)
    await _wake(parts)
    return quota_answer(account)


@router.delete("/quotas/{kind}/{name}", status_code=204)
async def delete(subject: TheSubject, parts: TheParts, _: TheSuperadmin) -> Response:
    """Lift all limits of a quota."""
    async with parts.database.transaction() as tx:
        await remove_quota(tx, subject)
    await _wake(parts)
    return Response(status_code=204)


async def _wake(parts: Parts) -> None:
    """Whoever waits, and may go on with the limits as they are now."""
    async with parts.database.transaction() as tx:
        woken = await admissible(tx)
    await parts.orchestrator.wake(woken)
