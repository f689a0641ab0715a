"""Pulling as a client of an engine does, with the connection in one's own hands."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.rig.images import Auth

_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """What the engine said: the HTTP status, all messages, and the error's text, wherever it stood."""

    status: int
    messages: tuple[dict[str, Any], ...]
    error: str

    @property
    def succeeded(self) -> bool:
        """The one proof of success is the `Status:` line."""
        return any(str(message.get("status", "")).startswith("Status: ") for message in self.messages)


def pull(engine_socket: Path, reference: str, *, auth: Auth | None = None, platform: str = "") -> Pulled:
    """Pull to the end, however long it takes, and report."""
    with pulling(engine_socket, reference, auth=auth, platform=platform) as response:
        body = response.read().decode()
    lines = [json.loads(line) for line in body.splitlines() if line.strip()]
    errors = [str(line.get("error") or line.get("message")) for line in lines if "error" in line or "message" in line]
    return Pulled(status=response.status_code, messages=tuple(lines), error=" ".join(errors))


@contextmanager
def pulling(
    engine_socket: Path, reference: str, *, auth: Auth | None = None, platform: str = ""
) -> Iterator[httpx.Response]:
    """A pull under way, its body not read yet. Leaving the context closes the connection, and so cancels the pull."""
    timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(engine_socket)), timeout=timeout) as http:
        repository, tag = _split(reference)
        parameters = {"fromImage": repository, "tag": tag, "platform": platform}
        with http.stream(
            "POST", "http://engine/images/create", params=parameters, headers=_auth_header(auth)
        ) as response:
            yield response


def _split(reference: str) -> tuple[str, str]:
    if "@" in reference:
        repository, _, digest = reference.partition("@")
        return repository, digest
    repository, _, tag = reference.rpartition(":")
    return repository, tag


def _auth_header(auth: Auth | None) -> dict[str, str]:
    if auth is None:
        return {}
    document = json.dumps({"username": auth[0], "password": auth[1]}).encode()
    return {"X-Registry-Auth": base64.urlsafe_b64encode(document).decode()}
