"""Sending an answer's body the way its faults want it, counting what the client takes."""

import socket
import struct
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from tests.rig.faults.kinds import Cut, Flip, Stall, Throttle, Trickle
from tests.rig.faults.pacing import Pace, pause
from tests.rig.faults.rules import ActiveRule, Struck
from tests.rig.faults.traffic import Exchange

_PIECE_BYTES_MAX: Final = 128 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class CutHere(Exception):  # noqa: N818 (it ends an answer on purpose)
    """The answer ends at this byte."""

    def __init__(self, *, with_reset: bool) -> None:
        super().__init__()
        self.with_reset: Final = with_reset


class Sender:
    """Writes one body. `offset` is the place of its first byte in the whole blob."""

    def __init__(
        self,
        response: web.StreamResponse,
        writer: AbstractStreamWriter,
        struck: Struck,
        exchange: Exchange,
        *,
        offset: int,
    ) -> None:
        self._response: Final = response
        self._writer: Final = writer
        self._struck: Final = struck
        self._exchange: Final = exchange
        self._offset: Final = offset
        self._paces: Final[dict[int, Pace]] = {}

    async def send(self, data: bytes) -> None:
        """Send all of it, piece by piece. Raises `CutHere`, and `ConnectionError` when the client has left."""
        left = memoryview(data)
        while left:
            size = await self._admitted(len(left))
            await self._response.write(self._flipped(left[:size]))
            # With the transport's buffer limit at 0 this returns when the kernel has taken everything.
            await self._writer.drain()
            self._exchange.sent(size)
            left = left[size:]

    async def _admitted(self, wanted: int) -> int:
        size = min(wanted, _PIECE_BYTES_MAX)
        rules = self._struck.now()
        for active in rules:
            size = await self._limited(active, size)
        for pace in (pace for active in rules for pace in self._paces_of(active)):
            await pace.take(size)
        return size

    async def _limited(self, active: ActiveRule, size: int) -> int:
        sent = self._exchange.body_bytes
        match active.rule.fault:
            case Stall(after_bytes=limit):
                if sent >= limit:
                    await active.released.wait()
                    return size
                return min(size, limit - sent)
            case Cut(after_bytes=limit, with_reset=with_reset):
                if sent >= limit:
                    raise CutHere(with_reset=with_reset)
                return min(size, limit - sent)
            case Trickle(piece_bytes=piece, every_seconds=seconds):
                await pause(seconds)
                return min(size, piece)
            case Throttle() if self._paces_of(active):
                return min(size, *(pace.piece_bytes for pace in self._paces_of(active)))
            case _:
                return size

    def _paces_of(self, active: ActiveRule) -> list[Pace]:
        fault = active.rule.fault
        if not isinstance(fault, Throttle):
            return []
        own = []
        if fault.bytes_per_second is not None:
            own = [self._paces.setdefault(active.number, Pace(fault.bytes_per_second))]
        return own + ([active.total_pace] if active.total_pace else [])

    def _flipped(self, piece: memoryview) -> memoryview | bytearray:
        start = self._offset + self._exchange.body_bytes
        places = {
            active.rule.fault.offset - start for active in self._struck.now() if isinstance(active.rule.fault, Flip)
        }
        places = {place for place in places if 0 <= place < len(piece)}
        if not places:
            return piece
        changed = bytearray(piece)
        for place in places:
            changed[place] ^= 0xFF
        return changed


def reset(request: web.BaseRequest) -> None:
    """End the connection with a RST."""
    if request.transport is not None:
        connection: socket.socket = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        request.transport.abort()
