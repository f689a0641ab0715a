"""No body larger than what a request can sensibly need is read."""

from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem_response

BODY_MAX: Final = 1 << 20


class BodyLimit:
    """Answers 413 to a body over `BODY_MAX` bytes, declared or not, before anything parses it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is small enough."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "DELETE"):
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            detail = f"the body is larger than {BODY_MAX} bytes"
            response = problem_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, reason="body-too-large")
            await response(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)


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
