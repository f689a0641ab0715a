"""An API on a free port that answers as it was told to, and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

BREAK = object()
"""In a stream: the connection breaks here."""

HOLD = object()
"""In a stream: silence until the server is stopped."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client sent. `path` is as it came, still quoted."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass(kw_only=True)
class FakeApi:
    """Answers by method and path, each list in order, its last one for ever."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    _answers: dict[tuple[str, str], list[tuple[int, str, list[Any]]]] = field(default_factory=dict)

    def answer(self, method: str, path: str, value: Any = None, *, status: int = 200) -> None:
        """One JSON answer; a problem document where the status is an error."""
        kind = "application/json" if status < 400 else "application/problem+json"
        self._add(method, path, status, kind, [b"" if value is None else json.dumps(value).encode()])

    def lose(self, method: str, path: str) -> None:
        """The request arrives; its answer does not."""
        self._add(method, path, 0, "", [])

    def stream(self, path: str, *parts: Any, kind: str = "text/event-stream") -> None:
        """A body in parts: bytes, `(event, data)` pairs, BREAK or HOLD."""
        self._add("GET", path, 200, kind, list(parts))

    def asked(self, method: str, path: str) -> list[Request]:
        """The requests of that kind so far."""
        return [one for one in self.requests if (one.method, one.path) == (method, path)]

    def _add(self, method: str, path: str, status: int, kind: str, parts: list[Any]) -> None:
        self._answers.setdefault((method, path), []).append((status, kind, parts))

    def next_answer(self, method: str, path: str) -> tuple[int, str, list[Any]]:
        """What to answer now."""
        answers = self._answers.get((method, path))
        if not answers:
            problem = {"title": "Not Found", "detail": f"{method} {path} is not faked", "reason": "not-found"}
            return 404, "application/problem+json", [json.dumps(problem).encode()]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    """A server until the block ends."""
    api = FakeApi()
    server = _Server(api)
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield api
    finally:
        api.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: FakeApi) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.api.requests.append(
            Request(
                method=self.command,
                path=url.path,
                query=parse_qs(url.query),
                headers=dict(self.headers),
                body=json.loads(body) if body else None,
            )
        )
        self.close_connection = True
        status, kind, parts = self.server.api.next_answer(self.command, url.path)
        if not status:
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for part in parts:
            if part is BREAK:
                return
            if part is HOLD:
                self.server.api.stopped.wait()
                return
            self._chunk(part if isinstance(part, bytes) else _event(*part))
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.handle_any
        raise AttributeError(name)


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return f"event: {kind}\r\nid: {data.get('seq', '')}\r\ndata: {json.dumps(data)}\r\n\r\n".encode()
