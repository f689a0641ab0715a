"""Asking a registry about an image before any byte of it is pulled: digest, platform, layers and their sizes.

The OCI clients on PyPI were looked at first: they have no asynchronous calls and no manifest HEAD with the index types, so
this speaks the four requests of the distribution protocol that are needed, over httpx.
"""

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.engine.failures import pull_failure
from towline.errors import PullError

_INDEX_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT: Final = {"Accept": ", ".join((*_INDEX_TYPES, *_MANIFEST_TYPES))}
_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class ResolvedImage:
    """`digest`: of what the reference names (an index where it is one); `layers`: (compressed digest, bytes) and `diff_ids`
    of the chosen `platform`, in order."""

    digest: str
    platform: str
    layers: tuple[tuple[str, int], ...]
    diff_ids: tuple[str, ...]


class Registries:
    """The registries, each asked by its own name. Plain HTTP only for loopback and for hosts named `insecure`."""

    def __init__(
        self, *, insecure: frozenset[str] = frozenset(), transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._insecure = insecure
        self._client = httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=True, transport=transport, trust_env=True)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def digest_of(self, ref: ImageRef, credential: Mapping[str, str] | None = None) -> str:
        """The digest that the reference names now: one HEAD, which registries do not count as a pull.

        Raises `PullError`.
        """
        response = await self._ask("HEAD", ref, f"manifests/{_reference(ref)}", credential)
        digest = response.headers.get("Docker-Content-Digest")
        if digest:
            return str(digest)
        body = await self._ask("GET", ref, f"manifests/{_reference(ref)}", credential)
        return _digest(body.content)

    async def resolve(self, ref: ImageRef, platform: str, credential: Mapping[str, str] | None = None) -> ResolvedImage:
        """Everything that can be known before the first byte. `platform` as `os/arch[/variant]`. Raises `PullError`."""
        response = await self._ask("GET", ref, f"manifests/{_reference(ref)}", credential)
        digest = response.headers.get("Docker-Content-Digest") or _digest(response.content)
        manifest = _parsed(response, ref)
        if "manifests" in manifest:
            chosen = _choose(manifest["manifests"], platform, ref)
            manifest = _parsed(await self._ask("GET", ref, f"manifests/{chosen}", credential), ref)
        layers = tuple((layer["digest"], int(layer["size"])) for layer in manifest.get("layers", []))
        config_digest = manifest.get("config", {}).get("digest")
        if not config_digest:
            raise pull_failure("invalid character in the manifest: it names no config", image=ref.familiar)
        config = _parsed(await self._ask("GET", ref, f"blobs/{config_digest}", credential), ref)
        _check_platform(config, platform, ref)
        diff_ids = tuple(config.get("rootfs", {}).get("diff_ids", ()))
        return ResolvedImage(digest=str(digest), platform=platform, layers=layers, diff_ids=diff_ids)

    async def _ask(self, method: str, ref: ImageRef, path: str, credential: Mapping[str, str] | None) -> httpx.Response:
        url = f"{self._base(ref.registry)}/v2/{ref.repository}/{path}"
        try:
            response = await self._client.request(method, url, headers=_ACCEPT)
            if response.status_code == httpx.codes.UNAUTHORIZED:
                headers = await self._authorization(response, ref, credential)
                if headers:
                    response = await self._client.request(method, url, headers=_ACCEPT | headers)
        except httpx.HTTPError as error:
            text = str(error) or type(error).__name__
            if isinstance(error, httpx.TimeoutException):
                text = f"{type(error).__name__}: i/o timeout {text}"
            raise pull_failure(text, image=ref.familiar) from error
        if response.is_success:
            return response
        raise _refusal(response, ref)

    def _base(self, registry: str) -> str:
        if registry == "docker.io":
            return "https://registry-1.docker.io"
        scheme = "http" if registry in self._insecure or _is_loopback(registry) else "https"
        return f"{scheme}://{registry}"

    async def _authorization(
        self, response: httpx.Response, ref: ImageRef, credential: Mapping[str, str] | None
    ) -> dict[str, str]:
        challenge = response.headers.get("WWW-Authenticate", "")
        basic = httpx.BasicAuth(credential["username"], credential["password"]) if credential else None
        if challenge.lower().startswith("basic"):
            if basic is None:
                return {}
            request = next(basic.auth_flow(httpx.Request("GET", str(response.url))))
            return {"Authorization": request.headers["Authorization"]}
        fields = dict(_CHALLENGE.findall(challenge))
        realm = fields.get("realm")
        if not realm:
            return {}
        scope = fields.get("scope") or f"repository:{ref.repository}:pull"
        answer = await self._client.get(
            realm, params={"service": fields.get("service", ""), "scope": scope}, auth=basic or httpx.USE_CLIENT_DEFAULT
        )
        if not answer.is_success:
            raise _refusal(answer, ref)
        token = _parsed(answer, ref)
        return {"Authorization": f"Bearer {token.get('token') or token.get('access_token')}"}


def _reference(ref: ImageRef) -> str:
    return ref.digest or ref.tag or "latest"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _is_loopback(registry: str) -> bool:
    host = registry.rsplit(":", 1)[0] if not registry.endswith("]") else registry
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _parsed(response: httpx.Response, ref: ImageRef) -> dict[str, Any]:
    try:
        value = json.loads(response.content)
    except ValueError as error:
        raise pull_failure(f"invalid character in the answer: {error}", image=ref.familiar) from error
    if not isinstance(value, dict):
        raise pull_failure("invalid character in the answer: not an object", image=ref.familiar)
    return value


def _choose(manifests: list[dict[str, Any]], platform: str, ref: ImageRef) -> str:
    """The digest of the index's manifest for the platform. Attestations (`unknown/unknown`) are no images."""
    os_, arch, variant = (*platform.split("/"), "", "")[:3]
    fitting = [
        entry
        for entry in manifests
        if entry.get("platform", {}).get("os") == os_
        and entry.get("platform", {}).get("architecture") == arch
        and (not variant or entry["platform"].get("variant", variant) == variant)
    ]
    if not fitting:
        raise pull_failure(f"no matching manifest for {platform} in the manifest list entries", image=ref.familiar)
    return str(fitting[0]["digest"])


def _check_platform(config: dict[str, Any], platform: str, ref: ImageRef) -> None:
    os_, arch = (*platform.split("/"), "")[:2]
    has = (config.get("os") or os_, config.get("architecture") or arch)
    if has != (os_, arch):
        raise pull_failure(
            f"no matching manifest: the image is for {has[0]}/{has[1]}, not for {platform}", image=ref.familiar
        )


def _refusal(response: httpx.Response, ref: ImageRef) -> PullError:
    try:
        first = response.json()["errors"][0]
        text = f"{str(first.get('code', '')).replace('_', ' ').lower()}: {first.get('message', '')}"
    except (ValueError, LookupError, TypeError, AttributeError):
        text = response.text[:200]
    status = response.status_code
    after = response.headers.get("Retry-After", "")
    seconds = float(after) if after.isdigit() else None
    if status == httpx.codes.NOT_FOUND:
        return PullError(
            f"{ref.familiar}: check the image's name and tag (the registry said 404 {text})",
            reason=Reason.IMAGE_NOT_FOUND,
            retryable=False,
        )
    word = {401: "unauthorized", 403: "denied", 429: "toomanyrequests"}.get(status, "unexpected HTTP status")
    return pull_failure(f"{word}: {status} {text}", image=ref.familiar, retry_after_seconds=seconds)
