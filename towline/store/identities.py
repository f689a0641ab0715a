"""Users and their tokens."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.ids import new_id
from towline.errors import ConflictError, NotFoundError
from towline.store.rows import TokenRow, UserRow, utc_now
from towline.store.views import TokenView, UserView

_USE_IS_NOTED_EVERY: Final = timedelta(minutes=1)
TOKEN_PREFIX: Final = "twl_"  # noqa: S105  # a prefix by which people and scanners know our tokens


def hash_of(token: str) -> bytes:
    """What is stored of a token. It is random and long, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


async def create_user(tx: AsyncSession, *, name: str, role: str, project: str | None = None) -> UserView:
    """A new user. Raises `ConflictError` when the name is taken."""
    row = insert(UserRow).values(id=new_id("usr"), name=name, role=role, project=project, created_at=utc_now())
    made = row.on_conflict_do_nothing(index_elements=["name"]).returning(UserRow)
    found = (await tx.execute(made)).scalar()
    if found is None:
        raise ConflictError(f"there is a user {name} already")
    return _user(found)


async def move_user(tx: AsyncSession, name: str, project: str | None) -> UserView:
    """Put a user into a project, or (None) into none. Raises `NotFoundError`."""
    row = (await tx.execute(select(UserRow).where(col(UserRow.name) == name))).scalar_one_or_none()
    if row is None:
        raise NotFoundError(f"there is no user {name}")
    row.project = project
    return _user(row)


async def list_users(tx: AsyncSession) -> Sequence[UserView]:
    """Every user, by name."""
    return [_user(row) for row in (await tx.execute(select(UserRow).order_by(col(UserRow.name)))).scalars()]


async def create_token(
    tx: AsyncSession, *, user: str, name: str = "", expires_at: datetime | None = None
) -> tuple[TokenView, str]:
    """A new token for the user of that name, and its text, which is shown this once. Raises `NotFoundError`."""
    owner = (await tx.execute(select(UserRow).where(col(UserRow.name) == user))).scalar_one_or_none()
    if owner is None:
        raise NotFoundError(f"there is no user {user}")
    plain = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row = TokenRow(id=new_id("tok"), user_id=owner.id, hash=hash_of(plain), name=name, expires_at=expires_at)
    tx.add(row)
    await tx.flush()
    return _token(row, owner.name), plain


async def revoke_token(tx: AsyncSession, token_id: str) -> None:
    """Make a token worthless; doing it twice is the same. Raises `NotFoundError`."""
    row = await tx.get(TokenRow, token_id)
    if row is None:
        raise NotFoundError(f"there is no token {token_id}")
    row.revoked_at = row.revoked_at or utc_now()


async def list_tokens(tx: AsyncSession, *, user: str) -> Sequence[TokenView]:
    """The tokens of the user of that name."""
    query = (
        select(TokenRow)
        .join(UserRow, col(UserRow.id) == col(TokenRow.user_id))
        .where(col(UserRow.name) == user)
        .order_by(col(TokenRow.created_at))
    )
    return [_token(row, user) for row in (await tx.execute(query)).scalars()]


async def user_of_token(tx: AsyncSession, token: str) -> UserView | None:
    """Whose token it is; None for one that is unknown, expired or revoked. Notes that it was used."""
    now = utc_now()
    query = (
        select(UserRow, TokenRow)
        .join(TokenRow, col(TokenRow.user_id) == col(UserRow.id))
        .where(
            col(TokenRow.hash) == hash_of(token),
            col(TokenRow.revoked_at).is_(None),
            or_(col(TokenRow.expires_at).is_(None), col(TokenRow.expires_at) > now),
        )
    )
    found = (await tx.execute(query)).one_or_none()
    if found is None:
        return None
    user, used = found
    if used.last_used_at is None or used.last_used_at < now - _USE_IS_NOTED_EVERY:
        await tx.execute(update(TokenRow).where(col(TokenRow.id) == used.id).values(last_used_at=now))
    return _user(user)


def _user(row: UserRow) -> UserView:
    return UserView(id=row.id, name=row.name, role=row.role, project=row.project, created_at=row.created_at)


def _token(row: TokenRow, user: str) -> TokenView:
    return TokenView(
        id=row.id,
        user=user,
        name=row.name,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )
