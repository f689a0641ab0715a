"""What many viewers wait on and one poller writes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from sse_starlette import ServerSentEvent


class Board:
    """Its `version` grows with each change. `wake`: set to have the poller look at once."""

    def __init__(self) -> None:
        self.version = 0
        self.viewers = 0
        self.wake = asyncio.Event()
        self._changed = asyncio.Event()

    async def changed_since(self, version: int) -> int:
        """Wait until there is something newer than `version`, and return the newest."""
        while self.version <= version:
            await self._changed.wait()
        return self.version

    @contextmanager
    def changing(self) -> Iterator[None]:
        """What is written in the block is seen as one change; nothing in it may wait."""
        yield
        self.version += 1
        # Who waits from now on waits for the next change: hundreds of viewers wake without one lock between them.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def frame(event: str, data: bytes) -> bytes:
    """`data`, JSON, as an event of a stream, for all viewers to send."""
    return ServerSentEvent(data.decode(), event=event).encode()
