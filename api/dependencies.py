"""What routes are given: the application's parts, and who is asking."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.live_pulls import PullReader, PullWatch, SharedProgress
from api.orchestrator import Orchestrator
from api.tasks import Tasks
from api.watch import Watch
from towline.domain.sessions import Actor
from towline.errors import FieldProblem, ForbiddenError, InvalidInputError, NotFoundError, UnauthenticatedError
from towline.store.database import Database
from towline.store.identities import user_of_token
from towline.store.sessions import get_session
from towline.store.views import SessionView

_BEARER = HTTPBearer(auto_error=False, description="A token: `towline up` makes the first, superadmins make others.")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The application's collaborators."""

    database: Database
    orchestrator: Orchestrator
    tasks: Tasks
    watch: Watch
    progress: SharedProgress
    pulls: PullReader
    pull_watch: PullWatch


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who is asking."""

    user_id: str
    name: str
    superadmin: bool

    @property
    def scope(self) -> str | None:
        """Whose things they see: their own user's, or everybody's (None)."""
        return None if self.superadmin else self.user_id

    @property
    def actor(self) -> Actor:
        """As it is recorded."""
        return Actor(user_id=self.user_id, name=self.name, superadmin=self.superadmin)


def only_known_queries(request: Request) -> None:
    """Refuse a misspelt parameter: ignored, it would answer another question than was asked."""
    if not request.query_params:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    operation = request.app.openapi()["paths"][route.path_format][request.method.lower()]
    known = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    names = f"; there are {', '.join(known)}" if known else ""
    unknown = [
        FieldProblem(field=name, problem=f"there is no such parameter{names}")
        for name in request.query_params
        if name not in known
    ]
    if unknown:
        raise InvalidInputError(
            "; ".join(f"{found.field}: {found.problem}" for found in unknown), fields=tuple(unknown)
        )


def parts_of(request: Request) -> Parts:
    """The parts of the application that serves this request."""
    parts: Parts = request.app.state.parts
    return parts


TheParts = Annotated[Parts, Depends(parts_of, scope="function")]


async def _caller(
    parts: TheParts, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> Caller:
    if credentials is None:
        raise UnauthenticatedError("send a token: `Authorization: Bearer twl_…`")
    async with parts.database.transaction() as tx:
        user = await user_of_token(tx, credentials.credentials)
    if user is None:
        raise UnauthenticatedError("the token is unknown, expired or revoked")
    return Caller(user_id=user.id, name=user.name, superadmin=user.role == "superadmin")


TheCaller = Annotated[Caller, Depends(_caller, scope="function")]


async def _superadmin(caller: TheCaller) -> Caller:
    if not caller.superadmin:
        raise ForbiddenError("this needs a superadmin's token")
    return caller


TheSuperadmin = Annotated[Caller, Depends(_superadmin, scope="function")]


async def _visible_session(session_id: str, parts: TheParts, caller: TheCaller) -> SessionView:
    async with parts.database.transaction() as tx:
        view = await get_session(tx, session_id)
    # Another's session looks like none: whether it exists is not the caller's to know.
    if view is None or not (caller.superadmin or view.spec.owner_id == caller.user_id):
        raise NotFoundError(f"there is no session {session_id[:64]!r}")
    return view


TheSession = Annotated[SessionView, Depends(_visible_session, scope="function")]
