"""Users and tokens."""

from fastapi import APIRouter, Response

from api.dependencies import TheCaller, TheParts, TheSuperadmin
from api.problems import RESPONSES
from api.schemas.answers import NewTokenAnswer, TokenAnswer, TokenList, UserAnswer, UserList
from api.schemas.requests import MoveBody, TokenBody, UserBody
from towline.errors import NotFoundError
from towline.store.identities import create_token, create_user, list_tokens, list_users, move_user, revoke_token

router = APIRouter(prefix="/v1", tags=["identities"], responses=RESPONSES)


@router.get("/me")
async def me(parts: TheParts, caller: TheCaller) -> UserAnswer:
    """Whose token this is."""
    async with parts.database.transaction() as tx:
        users = await list_users(tx)
    user = next((user for user in users if user.id == caller.user_id), None)
    if user is None:
        raise NotFoundError("the user is gone")
    return UserAnswer.model_validate(user)


@router.get("/users")
async def users(parts: TheParts, _: TheSuperadmin) -> UserList:
    """Every user."""
    async with parts.database.transaction() as tx:
        found = await list_users(tx)
    return UserList(users=[UserAnswer.model_validate(user) for user in found])


@router.post("/users", status_code=201)
async def add_user(body: UserBody, parts: TheParts, _: TheSuperadmin) -> UserAnswer:
    """Make a user."""
    async with parts.database.transaction() as tx:
        user = await create_user(tx, name=body.name, role=body.role, project=body.project)
    return UserAnswer.model_validate(user)


@router.patch("/users/{name}")
async def move(name: str, body: MoveBody, parts: TheParts, _: TheSuperadmin) -> UserAnswer:
    """Put a user into a project, or into none. What they have running counts there from then on."""
    async with parts.database.transaction() as tx:
        user = await move_user(tx, name, body.project)
    return UserAnswer.model_validate(user)


@router.get("/users/{name}/tokens")
async def tokens(name: str, parts: TheParts, _: TheSuperadmin) -> TokenList:
    """A user's tokens."""
    async with parts.database.transaction() as tx:
        found = await list_tokens(tx, user=name)
    return TokenList(tokens=[TokenAnswer.model_validate(token) for token in found])


@router.post("/users/{name}/tokens", status_code=201)
async def add_token(name: str, parts: TheParts, _: TheSuperadmin, body: TokenBody | None = None) -> NewTokenAnswer:
    """Make a token. Its text is shown this once."""
    asked = body or TokenBody()
    async with parts.database.transaction() as tx:
        made, plain = await create_token(tx, user=name, name=asked.name, expires_at=asked.expires_at)
    return NewTokenAnswer(**TokenAnswer.model_validate(made).model_dump(), token=plain)


@router.delete("/tokens/{token_id}", status_code=204)
async def delete_token(token_id: str, parts: TheParts, _: TheSuperadmin) -> Response:
    """Make a token worthless. Doing it twice is the same as once."""
    async with parts.database.transaction() as tx:
        await revoke_token(tx, token_id)
    return Response(status_code=204)
