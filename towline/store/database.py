"""The database: one pool, and the only place that commits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

EVENTS_CHANNEL: Final = "towline_events"
_STATEMENT_TIMEOUT_MS: Final = 15_000


def sqlalchemy_url(url: str) -> str:
    """The URL with the driver that is used here; plain `postgresql://` URLs are what people write."""
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


class Database:
    """A pool of connections. `transaction` is the only commit in the program."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str, *, pool_size: int = 10) -> "Database":
        """A pool for `url`. Connections are tried before use, so that a restarted Postgres costs nobody an error."""
        engine = create_async_engine(
            sqlalchemy_url(url),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            pool_timeout=10,
            connect_args={"options": f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c timezone=UTC"},
        )
        return cls(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """One use case: committed at the end of the block, rolled back when it raises. No network call inside."""
        async with AsyncSession(self._engine, expire_on_commit=False) as tx, tx.begin():
            yield tx

    async def responds(self) -> bool:
        """Whether the database answers. Raises what the driver raises when it does not."""
        async with self._engine.connect() as connection:
            return (await connection.execute(text("SELECT 1"))).scalar() == 1

    async def close(self) -> None:
        """Close the pool."""
        await self._engine.dispose()
