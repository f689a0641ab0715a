"""What many viewers wait on and one poller writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sse_starlette import ServerSentEvent


class Board:
    """Its `version` grows with each change. `wake`: set to have the poller look at once."""

    def __init__(self) -> None:
        self.version = 0
        self.viewers = 0
        self.wake = asyncio.Event()
        self._changed = asyncio.Condition()

    async def changed_since(self, version: int) -> int:
        """Wait until there is something newer than `version`, and return the newest."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version > version)
            return self.version

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """What is written in the block is seen as one change."""
        async with self._changed:
            yield
            self.version += 1
            self._changed.notify_all()


def frame(event: str, data: bytes) -> bytes:
    """`data`, JSON, as an event of a stream, for all viewers to send."""
    return ServerSentEvent(data.decode(), event=event).encode()
