"""The first superadmin: without one nobody could make any other user."""

import asyncio
from typing import Final

from sqlalchemy import func, select, text

from towline.store.database import Database
from towline.store.identities import create_token, create_user
from towline.store.rows import UserRow

FIRST_USER: Final = "admin"
_LOCK: Final = 0x746F6B6E
"""Advisory lock: of several processes that start at once, one makes the user."""


def ensure_first_token(url: str, *, another: bool = False) -> str | None:
    """Make the user `admin` and a token where there is no user at all. Returns the token's text, once; None after that.

    `another`: the token is lost; the user `admin` gets one more.
    """
    return asyncio.run(_ensure(url, another))


async def _ensure(url: str, another: bool) -> str | None:
    database = Database.open(url, pool_size=1)
    try:
        async with database.transaction() as tx:
            await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            if not (await tx.execute(select(func.count()).select_from(UserRow))).scalar():
                await create_user(tx, name=FIRST_USER, role="superadmin")
            elif not another:
                return None
            _, plain = await create_token(tx, user=FIRST_USER, name="first")
            return plain
    finally:
        await database.close()
