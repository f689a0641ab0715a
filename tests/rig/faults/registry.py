"""The fault-injecting registry: a proxy in front of a real one, in a thread of its own."""

import asyncio
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from aiohttp import web

from tests.rig.faults.admin import ADMIN_PATH, administer
from tests.rig.faults.front import FirstByte
from tests.rig.faults.kinds import Fault
from tests.rig.faults.proxy import FaultProxy
from tests.rig.faults.rules import ActiveRule, Rule
from tests.rig.faults.traffic import Traffic
from tests.rig.loop_thread import LoopThread

# Small, so that what counts as sent is not a heap of bytes that the client never took.
_SEND_BUFFER_BYTES: Final = 64 * 1024

T = TypeVar("T")


class FaultRegistry:
    """A registry with faults, from `start` (or entering the context) to `stop`. All methods may be called from any thread.

    `upstream` is the host of the real registry, "127.0.0.1:PORT". A stopped one may be started again, on the same port, with its rules.
    """

    def __init__(self, upstream: str, *, port: int = 0) -> None:
        self._proxy: Final = FaultProxy(upstream)
        self._port = port
        self._thread: LoopThread | None = None
        self._http: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._connections: Final[set[asyncio.Transport]] = set()

    @property
    def host(self) -> str:
        """`127.0.0.1:PORT`, as it stands in an image reference."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://{self.host}"

    def on(
        self,
        fault: Fault,
        *,
        path: str = "*",
        method: str = "*",
        first: int = 1,
        last: int | None = None,
        per_path: bool = False,
    ) -> ActiveRule:
        """Put a fault in force; the arguments are those of `Rule`."""
        return self.add(Rule(fault=fault, path=path, method=method, first=first, last=last, per_path=per_path))

    def add(self, rule: Rule) -> ActiveRule:
        """Put a rule in force."""
        return self._call(lambda: self._proxy.book.add(rule))

    def remove(self, active: ActiveRule) -> None:
        """Lift a rule, and release the requests that it holds."""
        self._call(lambda: self._proxy.book.remove(active.number))

    def clear(self) -> None:
        """Lift all rules."""
        self._call(self._proxy.book.clear)

    def stats(self) -> Traffic:
        """What went through since the start or the last `forget`."""
        return self._call(lambda: Traffic.of_all(self._proxy.exchanges))

    def forget(self) -> None:
        """Count from 0; what is in flight now is not counted further."""
        self._call(self._proxy.exchanges.clear)

    @property
    def body_bytes(self) -> int:
        """All bytes of bodies that clients have taken."""
        return self.stats().body_bytes

    def drop_connections(self) -> None:
        """Cut every client off, at once."""
        self._call(self._abort_all)

    def start(self) -> None:
        """Listen. Raises `OSError` when the port is taken."""
        listener = _listener(self._port)
        self._port = listener.getsockname()[1]
        self._thread = LoopThread("fault-registry")
        self._thread.run(self._open(listener))

    def stop(self) -> None:
        """Cut everybody off and end; nothing happens when it does not run."""
        if self._thread is not None:
            self._thread.run(self._close())
            self._thread.end()
            self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def _open(self, listener: socket.socket) -> None:
        await self._proxy.open()
        self._http = web.Server(self._handle, handler_cancellation=True, access_log=None)
        http = self._http
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: FirstByte(http, self._connections), sock=listener)

    async def _close(self) -> None:
        if self._server is not None and self._http is not None:
            self._server.close()
            self._abort_all()
            await self._http.shutdown(timeout=1)
        await self._proxy.close()

    def _abort_all(self) -> None:
        for transport in tuple(self._connections):
            transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(ADMIN_PATH):
            return await administer(self._proxy, request)
        return await self._proxy.handle(request)

    def _call(self, action: Callable[[], T]) -> T:
        return action() if self._thread is None else self._thread.call(action)


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(256)
    except OSError:
        listener.close()
        raise
    return listener
