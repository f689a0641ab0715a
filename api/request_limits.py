"""What no request needs: a body of megabytes, and NUL bytes in its address, which Postgres cannot hold."""

from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem_response

BODY_MAX: Final = 1 << 20


class RequestLimits:
    """Answers 413 to a body over `BODY_MAX` bytes, declared or not, before anything parses it; 404 and 400 to NUL bytes in the
    path and in the query."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = _refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if scope["method"] in ("GET", "HEAD", "DELETE"):
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            detail = f"the body is larger than {BODY_MAX} bytes"
            response = problem_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, reason="body-too-large")
            await response(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)


def _refusal(scope: Scope) -> Response | None:
    if "\x00" in scope["path"]:
        return problem_response(HTTPStatus.NOT_FOUND, "nothing has a NUL byte in its name", reason="not-found")
    if b"%00" in scope["query_string"] or b"\x00" in scope["query_string"]:
        return problem_response(HTTPStatus.BAD_REQUEST, "a NUL byte is not allowed in the query", reason="bad-request")
    return None


async def _read(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > BODY_MAX:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
