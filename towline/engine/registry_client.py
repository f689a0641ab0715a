"""Asking a registry: where it is, what it wants as proof, how long it may take, and what its refusals mean.

The OCI clients on PyPI were looked at first: they have no asynchronous calls and no manifest HEAD with the index types, so
this speaks the few requests of the distribution protocol that are needed, over httpx.
"""

import asyncio
import hashlib
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from towline.domain.images import DEFAULT_REGISTRY, ImageRef
from towline.engine.credentials import Credential
from towline.engine.failures import pull_failure
from towline.errors import PullError

INDEX_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT: Final = ", ".join((*INDEX_TYPES, *MANIFEST_TYPES))
_DOCKER_HUB: Final = "https://registry-1.docker.io"
_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
_ANSWER_SECONDS: Final = 15.0
"""For one answer as a whole, token included: a trickle of bytes would keep the time-outs above content for ever."""
_CONTENT_MAX: Final = 8 << 20
"""Registries take manifests of up to 4 MiB; configs of real images are smaller."""
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
_GRANTS_KEPT: Final = 256

Mirrors = Callable[[], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`announced` is the digest that the registry's header names, not verified; `digest` that of the content."""

    content: bytes
    announced: str | None

    @property
    def digest(self) -> str:
        """Of what came."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"


class RegistryClient:
    """All registries. Plain HTTP only for loopback and for hosts named `insecure`.

    `mirrors`: the base URLs that are asked for Docker Hub's images first, as the engine does.
    """

    def __init__(
        self,
        *,
        insecure: frozenset[str] = frozenset(),
        mirrors: Mirrors | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._insecure = insecure
        self._mirrors = mirrors
        # A proxy of the environment is for the network, not for this host.
        direct: dict[str, httpx.AsyncBaseTransport | None]
        direct = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT, follow_redirects=True, transport=transport, mounts=None if transport else direct
        )
        self._grants: dict[tuple[str, str, Credential | None], str] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def ask(self, method: str, ref: ImageRef, path: str, credential: Credential | None) -> Answer:
        """`path` below the repository: `manifests/…` or `blobs/…`. Raises `PullError`."""
        *mirrors, home = await self._bases(ref.registry)
        for mirror in mirrors:
            try:
                return await self._ask_at(mirror, method, ref, path, None)
            except PullError:
                continue  # A mirror that fails, or lacks the image, is passed over.
        return await self._ask_at(home, method, ref, path, credential)

    async def _bases(self, registry: str) -> tuple[str, ...]:
        if registry == DEFAULT_REGISTRY:
            mirrors = await self._mirrors() if self._mirrors else ()
            return (*(mirror.rstrip("/") for mirror in mirrors), _DOCKER_HUB)
        scheme = "http" if registry in self._insecure or is_loopback(registry) else "https"
        return (f"{scheme}://{registry}",)

    async def _ask_at(self, base: str, method: str, ref: ImageRef, path: str, credential: Credential | None) -> Answer:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reply = await self._authorized(base, method, ref, path, credential)
        except TimeoutError as error:
            raise pull_failure("timeout: the registry did not answer in time", image=ref.familiar) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            kind = "timeout " if isinstance(error, httpx.TimeoutException) else ""
            raise pull_failure(f"{kind}{type(error).__name__}: {error}", image=ref.familiar) from error
        if not reply.is_success:
            raise _refusal(reply, ref)
        return Answer(content=reply.content, announced=reply.headers.get("Docker-Content-Digest"))

    async def _authorized(
        self, base: str, method: str, ref: ImageRef, path: str, credential: Credential | None
    ) -> "_Reply":
        url, key = f"{base}/v2/{ref.repository}/{path}", (base, ref.repository, credential)
        reply = await self._send(method, url, self._grants.get(key))
        if reply.status != httpx.codes.UNAUTHORIZED:
            return reply
        grant = await self._grant(reply, base, ref, credential)
        if grant is None:
            return reply
        if len(self._grants) >= _GRANTS_KEPT:
            self._grants.clear()
        self._grants[key] = grant
        return await self._send(method, url, grant)

    async def _grant(self, reply: "_Reply", base: str, ref: ImageRef, credential: Credential | None) -> str | None:
        """The header that answers the registry's challenge; None where there is nothing to answer with."""
        auth = httpx.BasicAuth(credential.username, credential.password) if credential and credential.username else None
        challenges = {text.split(" ")[0].lower(): text for text in reply.headers.get_list("WWW-Authenticate")}
        if bearer := challenges.get("bearer"):
            fields = dict(_CHALLENGE.findall(bearer))
            realm = fields.get("realm", "")
            if auth and urlsplit(base).scheme == "https" and urlsplit(realm).scheme != "https":
                raise pull_failure(
                    "tls: the registry's token server would get the password unsealed", image=ref.familiar
                )
            wanted = {"scope": fields.get("scope") or f"repository:{ref.repository}:pull"}
            if service := fields.get("service"):
                wanted["service"] = service
            answer = await self._send("GET", str(httpx.URL(realm, params=wanted)), _basic(auth))
            if not answer.is_success:
                raise _refusal(answer, ref)
            token = answer.fields().get("token") or answer.fields().get("access_token")
            return f"Bearer {token}" if token else None
        return _basic(auth) if "basic" in challenges else None

    async def _send(self, method: str, url: str, grant: str | None) -> "_Reply":
        headers = {"Accept": _ACCEPT} | ({"Authorization": grant} if grant else {})
        async with self._client.stream(method, url, headers=headers) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > _CONTENT_MAX:
                    raise httpx.DecodingError("the answer is too large")
        return _Reply(status=response.status_code, headers=response.headers, content=bytes(content))


@dataclass(frozen=True, kw_only=True)
class _Reply:
    status: int
    headers: httpx.Headers
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def fields(self) -> dict[str, Any]:
        """The JSON object in the body; empty where it is none."""
        try:
            value = json.loads(self.content)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def is_loopback(registry: str) -> bool:
    """Whether the registry, with or without a port, is on this host."""
    host = (urlsplit(f"//{registry}").hostname or "").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _basic(auth: httpx.BasicAuth | None) -> str | None:
    if auth is None:
        return None
    return next(auth.auth_flow(httpx.Request("GET", "http://registry"))).headers["Authorization"]


def _refusal(reply: _Reply, ref: ImageRef) -> PullError:
    errors = reply.fields().get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    said = (
        f"{first.get('code', '')}: {first.get('message', '')}"
        if first
        else reply.content[:200].decode(errors="replace")
    )
    after = reply.headers.get("Retry-After", "")
    return pull_failure(
        f"{reply.status} {said}",
        image=ref.familiar,
        registry_status=reply.status,
        retry_after_seconds=float(after) if after.isdigit() and len(after) < 10 else None,
    )
