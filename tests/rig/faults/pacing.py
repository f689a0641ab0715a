"""Sending at a rate."""

import asyncio
from typing import Final

# A piece every 50 ms looks smooth to every meter; pieces beyond 64 KiB would sit in buffers.
_PIECES_PER_SECOND: Final = 20
_PIECE_BYTES_MAX: Final = 64 * 1024
# How much lateness of the event loop is made up for; more would be a burst.
_SLACK_SECONDS: Final = 0.1


async def pause(seconds: float) -> None:
    """The silence that a fault asks for."""
    await asyncio.sleep(seconds)


class Pace:
    """A rate that one or several senders keep together."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate: Final = bytes_per_second
        self._free_at = 0.0

    @property
    def piece_bytes(self) -> int:
        """The most that should be sent at once."""
        return max(1, min(_PIECE_BYTES_MAX, int(self._rate / _PIECES_PER_SECOND)))

    async def take(self, size_bytes: int) -> None:
        """Wait until so many bytes may have been sent."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now - _SLACK_SECONDS if self._free_at else now) + size_bytes / self._rate
        if self._free_at > now:
            await pause(self._free_at - now)
