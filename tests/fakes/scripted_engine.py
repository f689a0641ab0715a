"""An engine of which a test writes every byte: for streams that no real engine gives on demand."""

import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

Pull = Callable[["Conversation"], None]
CLASSIC: Final[dict[str, Any]] = {"OSType": "linux", "Architecture": "x86_64", "Driver": "overlay2"}
PODMAN: Final[dict[str, Any]] = {"OSType": "linux", "Architecture": "amd64", "BuildahVersion": "1.28.2"}


class Conversation(BaseHTTPRequestHandler):
    """One connection. The methods below are for a test's `pull`."""

    protocol_version = "HTTP/1.1"
    script: ClassVar["ScriptedEngine"]

    def say(self, *messages: object) -> None:
        """Send messages as one chunk, after the headers of a chunked answer if those have not been sent yet."""
        self.say_raw(b"".join(json.dumps(message).encode() + b"\r\n" for message in messages))

    def say_raw(self, data: bytes) -> None:
        """Send bytes as one chunk."""
        self.begin()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def begin(self) -> None:
        """Send the headers of a chunked answer, once."""
        if not getattr(self, "begun", False):
            self.begun = True
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

    def end_well(self) -> None:
        """End the chunked answer in good order."""
        self.begin()
        self.wfile.write(b"0\r\n\r\n")

    def be_silent(self) -> None:
        """Say nothing until the client leaves."""
        self.script.silent.release()
        self.rfile.read(1)
        self.close_connection = True

    def hang_up(self) -> None:
        """End the connection, whatever was promised."""
        self.close_connection = True

    def answer(self, body: object, status: int = 200) -> None:
        """A plain answer, not chunked."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/version"):
            self.answer({"ApiVersion": "1.41"})
        elif path.endswith("/info"):
            self.answer(self.script.info)
        elif path.endswith(("/images/json", "/networks")):
            self.answer([])
        elif self.script.image is not None:
            self.answer(self.script.image)
        else:
            self.answer({"message": "no such image"}, 404)

    def do_POST(self) -> None:
        if "/images/create" not in self.path:
            self.answer({}, 201)
            return
        self.script.pulls.append(self.path)
        self.script.pull(self)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is in the base class
        """Not to the test's output."""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has left is no error here."""

    def get_request(self) -> Any:
        request, _ = super().get_request()
        return request, ("engine", 0)


@dataclass(kw_only=True, eq=False)
class ScriptedEngine:
    """Answers pulls as `pull` does; `image` is what an inspection finds. `silent` counts pulls that have gone quiet."""

    socket: Path
    pull: Pull
    info: Mapping[str, Any] = field(default_factory=lambda: CLASSIC)
    image: Mapping[str, Any] | None = None
    pulls: list[str] = field(default_factory=list)
    silent: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def url(self) -> str:
        """As the SDK takes it."""
        return f"unix://{self.socket}"

    def __enter__(self) -> Self:
        handler = type("Handler", (Conversation,), {"script": self})
        self._server = _Server(str(self.socket), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="scripted-engine", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
