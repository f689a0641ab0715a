"""The database: one pool, and the only place that commits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from towline.store.text import replace_unkeepable_text, to_json

EVENTS_CHANNEL: Final = "towline_events"
_CONNECT_TIMEOUT_SECONDS: Final = 10
_SERVER_SETTINGS: Final = {
    "application_name": "towline",
    "timezone": "UTC",
    "statement_timeout": "15s",
    # A process that is frozen in a transaction would hold up everybody's placement.
    "idle_in_transaction_session_timeout": "30s",
}


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
            pool_timeout=30,
            # Placement locks and then reads: each statement has to see what was committed before it.
            isolation_level="READ COMMITTED",
            json_serializer=to_json,
            connect_args={
                "connect_timeout": _CONNECT_TIMEOUT_SECONDS,
                "options": " ".join(f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items()),
            },
        )
        event.listen(engine.sync_engine, "connect", _on_connect)
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


def _on_connect(dbapi_connection: Any, _record: object) -> None:
    replace_unkeepable_text(dbapi_connection.driver_connection)
