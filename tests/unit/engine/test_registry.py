"""Resolving references, against a registry that a test writes."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.engine.credentials import Credential
from towline.engine.registry import Registries, ResolvedImage
from towline.engine.registry_client import is_loopback
from towline.errors import PullError

REF = ImageRef.parse("registry.example.com:5000/team/app:1")
LAYERS: list[dict[str, Any]] = [{"digest": f"sha256:{n:064x}", "size": 100 + n} for n in range(3)]
DIFF_IDS = [f"sha256:{n:064x}" for n in range(10, 13)]
CREDENTIAL = Credential(username="u", password="p")
Handler = Callable[[httpx.Request], httpx.Response | None]


@dataclass(kw_only=True)
class Registry:
    """Content by digest, tags, and a `front` that may answer first."""

    content: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    front: Handler = lambda _: None
    requests: list[httpx.Request] = field(default_factory=list)
    announces: bool = True

    def put(self, document: dict[str, Any], tag: str | None = None) -> str:
        data = json.dumps(document).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.content[digest] = data
        if tag:
            self.tags[tag] = digest
        return digest

    def put_image(self, tag: str | None = None, **platform: str) -> str:
        config = self.put({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": DIFF_IDS}} | platform)
        return self.put({"config": {"digest": config, "size": 1}, "layers": LAYERS}, tag)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if (answer := self.front(request)) is not None:
            return answer
        name = request.url.path.rpartition("/")[2]
        digest = self.tags.get(name, name)
        if digest not in self.content:
            return httpx.Response(404, json={"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]})
        headers = {"Docker-Content-Digest": digest} if self.announces else {}
        body = b"" if request.method == "HEAD" else self.content[digest]
        return httpx.Response(200, content=body, headers=headers)

    def asked(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def registries(registry: Registry) -> AsyncIterator[Registries]:
    made = Registries(transport=httpx.MockTransport(registry.handle))
    yield made
    await made.close()


async def fails(registries: Registries, ref: ImageRef = REF, credential: Credential | None = None) -> PullError:
    with pytest.raises(PullError) as caught:
        await registries.resolve(ref, "linux/amd64", credential)
    return caught.value


class TestResolving:
    async def test_layers_and_diff_ids_in_order(self, registry: Registry, registries: Registries) -> None:
        digest = registry.put_image("1")
        assert await registries.resolve(REF, "linux/amd64") == ResolvedImage(
            digest=digest,
            platform="linux/amd64",
            layers=tuple((layer["digest"], layer["size"]) for layer in LAYERS),
            diff_ids=tuple(DIFF_IDS),
        )

    async def test_what_a_digest_names_is_asked_for_once(self, registry: Registry, registries: Registries) -> None:
        registry.put_image("1")
        for _ in range(3):
            await registries.resolve(REF, "linux/amd64")
        assert (registry.asked("HEAD"), registry.asked("GET")) == (3, 2)

    async def test_a_registry_that_announces_no_digest(self, registry: Registry, registries: Registries) -> None:
        registry.announces = False
        assert await registries.digest_of(REF.pinned(registry.put_image("1"))) == registry.tags["1"]
        assert (await registries.resolve(REF, "linux/amd64")).digest == registry.tags["1"]

    async def test_content_that_is_not_the_digests_is_refused(self, registry: Registry, registries: Registries) -> None:
        digest = registry.put_image("1")
        registry.content[digest] += b" "
        assert (await fails(registries)).reason is Reason.DIGEST_MISMATCH

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{}", b'{"manifests": 3}', b'{"config": {}, "layers": null}', b"\xff\x00", b"[" * 5000]
    )
    async def test_nonsense_is_the_registrys_error(
        self, registry: Registry, registries: Registries, body: bytes
    ) -> None:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        registry.content[digest], registry.tags["1"] = body, digest
        assert (await fails(registries)).reason is Reason.REGISTRY_ERROR

    async def test_an_answer_without_end_is_cut_off(self, registry: Registry, registries: Registries) -> None:
        registry.front = lambda _: httpx.Response(200, content=b" " * (9 << 20))
        assert (await fails(registries, REF.pinned(f"sha256:{'0' * 64}"))).reason is not None
        assert len(registry.requests) == 1


class TestPlatforms:
    def put_index(self, registry: Registry, *platforms: dict[str, Any] | None) -> dict[int, str]:
        images = {n: registry.put_image(marker=str(n), **(_image_platform(p))) for n, p in enumerate(platforms)}
        entries = [
            {"digest": images[n], "size": 1} | ({"platform": platform} if platform else {})
            for n, platform in enumerate(platforms)
        ]
        registry.put({"manifests": entries}, "1")
        return images

    @pytest.mark.parametrize(
        ("wanted", "chosen"),
        [("linux/amd64", 2), ("linux/arm64", 3), ("linux/arm64/v8", 3), ("linux/arm/v7", 5), ("linux/arm/v6", 4)],
    )
    async def test_the_best_fitting_entry(
        self, registry: Registry, registries: Registries, wanted: str, chosen: int
    ) -> None:
        images = self.put_index(
            registry,
            {"os": "unknown", "architecture": "unknown"},
            {"os": "linux", "architecture": "amd64", "variant": "v3"},
            {"os": "linux", "architecture": "amd64"},
            {"os": "linux", "architecture": "arm64", "variant": "v8"},
            {"os": "linux", "architecture": "arm", "variant": "v6"},
            {"os": "linux", "architecture": "arm", "variant": "v7"},
            None,
        )
        resolved = await registries.resolve(REF, wanted)
        assert resolved.digest == registry.tags["1"]
        asked = {request.url.path.rpartition("/")[2] for request in registry.requests}
        assert asked & set(images.values()) == {images[chosen]}

    async def test_none_that_fits(self, registry: Registry, registries: Registries) -> None:
        self.put_index(registry, {"os": "linux", "architecture": "arm64"}, None)
        error = await fails(registries)
        assert (error.reason, error.retryable) == (Reason.PLATFORM_MISMATCH, False)

    async def test_a_single_image_for_another_platform(self, registry: Registry, registries: Registries) -> None:
        registry.put_image("1", architecture="arm64")
        assert (await fails(registries)).reason is Reason.PLATFORM_MISMATCH


def _image_platform(platform: dict[str, Any] | None) -> dict[str, str]:
    return {name: value for name, value in (platform or {}).items() if name != "variant"}


class TestCredentials:
    def wants(self, challenge: str, good: str) -> Handler:
        def front(request: httpx.Request) -> httpx.Response | None:
            if request.url.path == "/token":
                granted = request.headers.get("Authorization", "").startswith("Basic")
                return httpx.Response(200 if granted else 401, json={"access_token": "t"})
            if request.headers.get("Authorization") == good:
                return None
            return httpx.Response(401, headers={"WWW-Authenticate": challenge})

        return front

    async def test_basic(self, registry: Registry, registries: Registries) -> None:
        registry.front = self.wants('Basic realm="r"', "Basic dTpw")
        registry.put_image("1")
        await registries.resolve(REF, "linux/amd64", CREDENTIAL)
        assert (await fails(registries)).reason is Reason.UNAUTHORIZED

    async def test_bearer(self, registry: Registry, registries: Registries) -> None:
        registry.front = self.wants('Bearer realm="https://auth.example.com/token",service="s"', "Bearer t")
        registry.put_image("1")
        await registries.resolve(REF, "linux/amd64", CREDENTIAL)
        token = [request.url for request in registry.requests if request.url.path == "/token"]
        assert [dict(url.params) for url in token] == [{"scope": "repository:team/app:pull", "service": "s"}]
        assert (await fails(registries)).reason is Reason.UNAUTHORIZED

    async def test_a_password_does_not_leave_tls(self, registry: Registry, registries: Registries) -> None:
        registry.front = self.wants('Bearer realm="http://auth.example.com/token"', "Bearer t")
        registry.put_image("1")
        assert (await fails(registries, credential=CREDENTIAL)).reason is Reason.TLS
        assert not [request for request in registry.requests if request.url.path == "/token"]

    async def test_a_mirror_is_asked_first_and_never_given_the_password(self, registry: Registry) -> None:
        async def mirrors() -> tuple[str, ...]:
            return ("http://mirror:5000/",)

        registry.front = lambda request: httpx.Response(503) if request.url.host == "mirror" else None
        registry.put_image("1")
        registries = Registries(mirrors=mirrors, transport=httpx.MockTransport(registry.handle))
        await registries.resolve(ImageRef.parse("busybox:1"), "linux/amd64", CREDENTIAL)
        asked = [request for request in registry.requests if request.url.host == "mirror"]
        assert asked
        assert not [request for request in asked if "Authorization" in request.headers]
        await registries.close()


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "body", "reason"),
        [
            (401, "", Reason.UNAUTHORIZED),
            (401, "you have reached your pull rate limit", Reason.RATE_LIMITED),
            (403, "", Reason.ACCESS_DENIED),
            (404, "", Reason.IMAGE_NOT_FOUND),
            (429, "", Reason.RATE_LIMITED),
            (418, "", Reason.REGISTRY_ERROR),
            (502, "denied by the proxy", Reason.REGISTRY_ERROR),
        ],
    )
    async def test_the_status_counts_unless_the_words_know_better(
        self, registry: Registry, registries: Registries, status: int, body: str, reason: Reason
    ) -> None:
        registry.front = lambda _: httpx.Response(status, text=body, headers={"Retry-After": "7"})
        error = await fails(registries, REF.pinned(f"sha256:{'0' * 64}"))
        assert error.reason is reason
        assert error.retry_after_seconds == (7 if reason is Reason.RATE_LIMITED else None)

    @pytest.mark.parametrize(
        "error", [httpx.ConnectTimeout("late"), httpx.ReadTimeout(""), httpx.RemoteProtocolError("EOF")]
    )
    async def test_a_broken_way_to_the_registry(
        self, registry: Registry, registries: Registries, error: httpx.HTTPError
    ) -> None:
        def front(_: httpx.Request) -> httpx.Response | None:
            raise error

        registry.front = front
        assert (await fails(registries)).reason is Reason.NETWORK


@pytest.mark.parametrize(
    ("registry", "loopback"),
    [
        ("localhost:5000", True),
        ("127.9.9.9", True),
        ("[::1]:5000", True),
        ("10.0.0.1:80", False),
        ("local.example", False),
    ],
)
def test_plain_http_is_for_this_host_alone(registry: str, loopback: bool) -> None:
    assert is_loopback(registry) is loopback
