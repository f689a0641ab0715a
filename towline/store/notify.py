"""Being told of new events by Postgres, so that nobody has to poll for them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

import psycopg

from towline.store.database import EVENTS_CHANNEL

_log = logging.getLogger(__name__)
_RECONNECT_SECONDS: Final = 1.0


async def listen(url: str) -> AsyncIterator[str | None]:
    """Session ids whose events were committed, for ever. None: the connection was lost and is there again, so that anything
    may have happened meanwhile."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute(f"LISTEN {EVENTS_CHANNEL}")
                yield None
                async for note in connection.notifies():
                    yield note.payload
        except psycopg.OperationalError as error:
            _log.warning("not listening for events now: %s", error)
        await asyncio.sleep(_RECONNECT_SECONDS)
