"""Asking for credentials: basic, and bearer tokens with an endpoint of our own."""

import base64
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tests.rig.faults.kinds import Answer, RequireBasic, RequireBearer, registry_error

TOKEN_PATH: Final = "/_faults/token"
_SERVICE: Final = "fault-registry"


@dataclass(frozen=True, kw_only=True)
class _Token:
    repository: str
    good_until: float


def basic_refusal(fault: RequireBasic, authorization: str) -> Answer | None:
    """The 401 for a request without the right user and password; None lets it pass."""
    if _basic(authorization) == (fault.user, fault.password):
        return None
    return _unauthorized('Basic realm="fault registry"')


class TokenDesk:
    """Gives tokens and checks them."""

    def __init__(self) -> None:
        self._tokens: Final[dict[str, _Token]] = {}

    def refusal(self, fault: RequireBearer, authorization: str, *, host: str, path: str) -> Answer | None:
        """The 401 for a request whose token does not open `path`; None lets it pass."""
        repository = _repository_of(path)
        token = self._tokens.get(authorization.removeprefix("Bearer "))
        if (
            token is not None
            and time.monotonic() < token.good_until
            and (not repository or token.repository == repository)
        ):
            return None
        challenge = f'Bearer realm="{fault.realm or f"http://{host}{TOKEN_PATH}"}",service="{_SERVICE}"'
        if repository:
            challenge += f',scope="repository:{repository}:pull"'
        if token is not None:
            challenge += ',error="invalid_token"'
        return _unauthorized(challenge)

    def give(
        self, fault: RequireBearer, fields: Mapping[str, str], authorization: str
    ) -> tuple[int, dict[str, object]]:
        """Status and body of the token endpoint. `fields`: the query of a GET, or the form of an OAuth2 POST (containerd's way)."""
        given = (
            (fields.get("username", ""), fields.get("password", "")) if "username" in fields else _basic(authorization)
        )
        if fault.user is not None and given != (fault.user, fault.password):
            return 401, {"errors": [{"code": "UNAUTHORIZED", "message": "incorrect username or password"}]}
        repository = fields.get("scope", "").removeprefix("repository:").rpartition(":")[0]
        if not any(fnmatchcase(repository, pattern) for pattern in fault.repositories):
            repository = ""
        token = secrets.token_urlsafe(24)
        self._tokens[token] = _Token(repository=repository, good_until=time.monotonic() + fault.token_seconds)
        return 200, {"token": token, "access_token": token, "expires_in": max(1, int(fault.token_seconds))}


def _unauthorized(challenge: str) -> Answer:
    return registry_error(401, "UNAUTHORIZED", "authentication required", headers={"WWW-Authenticate": challenge})


def _basic(authorization: str) -> tuple[str, str] | None:
    scheme, _, coded = authorization.partition(" ")
    if scheme != "Basic":
        return None
    try:
        user, _, password = base64.b64decode(coded).decode().partition(":")
    except ValueError:
        return None
    return user, password


def _repository_of(path: str) -> str:
    inner = path.removeprefix("/v2/")
    for part in ("/manifests/", "/blobs/", "/tags/"):
        if part in inner:
            return inner.partition(part)[0]
    return ""
