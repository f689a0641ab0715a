"""The first byte of a connection decides: TLS is refused at once, HTTP is served."""

import asyncio
from typing import Final, cast

from aiohttp import web

_TLS_HANDSHAKE: Final = b"\x16"
_REFUSAL: Final = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"Client sent an HTTPS request to an HTTP server.\n"
)


class FirstByte(asyncio.Protocol):
    """dockerd tries TLS first on loopback registries, at every pull, and without an answer in plain HTTP waits for 10 s."""

    def __init__(self, http: web.Server, connections: set[asyncio.Transport]) -> None:
        self._http: Final = http()
        self._connections: Final = connections
        self._transport: asyncio.Transport | None = None
        self._decided = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast(asyncio.Transport, transport)
        # So that a write waits until the kernel has taken it.
        self._transport.set_write_buffer_limits(high=0)
        self._connections.add(self._transport)

    def data_received(self, data: bytes) -> None:
        """Pass on, or refuse."""
        assert self._transport is not None
        if not self._decided:
            self._decided = True
            if data.startswith(_TLS_HANDSHAKE):
                self._transport.write(_REFUSAL)
                self._transport.close()
                return
            self._http.connection_made(self._transport)
        self._http.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        if self._transport is not None:
            self._connections.discard(self._transport)
        if self._http.transport is not None:
            self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._http.resume_writing()
