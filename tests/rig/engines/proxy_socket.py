"""A socket in front of an engine's, on which answers get lost or late."""

import asyncio
import re
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.rig.faults.kinds import Cut, Delay, NeverAnswer
from tests.rig.faults.pacing import pause
from tests.rig.faults.rules import ActiveRule, Rule, RuleBook, Struck
from tests.rig.loop_thread import LoopThread

_REQUEST_LINE: Final = re.compile(rb"([A-Z]+) (/[^ ?]*)[^ ]* HTTP/1\.[01]\r\n")
_READ_BYTES: Final = 64 * 1024

AnswerFault = Delay | NeverAnswer | Cut


class ProxySocket:
    """A unix socket that passes everything to the engine, and its answers back as the rules allow.

    The engine always gets the request and acts on it: `Cut` loses the answer (after so many bytes), `NeverAnswer` holds it
    until the rule is removed, `Delay` makes it late. While it is stopped, the socket is away; it may be started again at the same path.
    """

    def __init__(self, engine_socket: Path) -> None:
        # A short path: socket paths end at 108 characters.
        self._directory: Final = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
        self.socket: Final = self._directory / "p.sock"
        self._engine_socket: Final = engine_socket
        self._book: Final = RuleBook()
        self._thread: LoopThread | None = None
        self._server: asyncio.Server | None = None
        self._conversations: Final[set[asyncio.Task[None]]] = set()

    @property
    def url(self) -> str:
        """`unix://…`, as the Docker SDK takes it."""
        return f"unix://{self.socket}"

    def on(
        self, fault: AnswerFault, *, path: str = "*", method: str = "*", first: int = 1, last: int | None = None
    ) -> ActiveRule:
        """Put a fault in force; the arguments are those of `Rule`. Paths have the API's version in front: `/v1.41/containers/create`."""
        rule = Rule(fault=fault, path=path, method=method, first=first, last=last)
        return self._running().call(lambda: self._book.add(rule))

    def remove(self, active: ActiveRule) -> None:
        """Lift a rule, and let go the answers that it holds."""
        self._running().call(lambda: self._book.remove(active.number))

    def clear(self) -> None:
        """Lift all rules."""
        self._running().call(self._book.clear)

    def start(self) -> None:
        """Listen."""
        self._thread = LoopThread("proxy-socket")
        self._thread.run(self._open())

    def stop(self) -> None:
        """Close the socket and cut everybody off; nothing happens when it does not run."""
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
        shutil.rmtree(self._directory)

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("the proxy does not run")
        return self._thread

    async def _open(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, str(self.socket))

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.socket.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: the one that asyncio would make complains when it is cancelled.
        task = asyncio.create_task(self._serve(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            engine_reader, engine_writer = await asyncio.open_unix_connection(str(self._engine_socket))
        except OSError:
            writer.close()
            return
        talk = _Talk(self._book)
        up = asyncio.create_task(talk.pass_requests(reader, engine_writer))
        try:
            await talk.pass_answers(engine_reader, writer)
        except ConnectionError:
            pass
        finally:
            up.cancel()
            engine_writer.close()
            writer.close()


class _Talk:
    """One connection. The Docker SDK sends a request's head in a piece of its own, and waits for the answer before the next."""

    def __init__(self, book: RuleBook) -> None:
        self._book: Final = book
        self._struck: Struck | None = None
        self._answered_bytes = 0

    async def pass_requests(self, client: asyncio.StreamReader, engine: asyncio.StreamWriter) -> None:
        while data := await client.read(_READ_BYTES):
            line = _REQUEST_LINE.match(data)
            if line is not None:
                self._struck = Struck(self._book, line.group(1).decode(), line.group(2).decode())
                self._answered_bytes = 0
            engine.write(data)
            await engine.drain()
        # Half a close is how the client of an attached container says that its input ends, and how the engine learns of a client that left.
        engine.write_eof()

    async def pass_answers(self, engine: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await engine.read(_READ_BYTES):
            allowed = await self._allowed(len(data))
            client.write(data[:allowed])
            await client.drain()
            self._answered_bytes += allowed
            if allowed < len(data):
                return

    async def _allowed(self, size: int) -> int:
        for active in self._struck.now() if self._struck else ():
            match active.rule.fault:
                case NeverAnswer():
                    await active.released.wait()
                case Delay(seconds=seconds) if self._answered_bytes == 0:
                    await pause(seconds)
                case Cut(after_bytes=limit):
                    size = min(size, max(0, limit - self._answered_bytes))
                case _:
                    pass
        return size
