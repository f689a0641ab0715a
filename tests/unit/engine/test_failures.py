"""What engines and registries said, recorded, and what it means."""

import json
from pathlib import Path

import pytest

from towline.domain.lifecycle import Reason
from towline.engine.failures import pull_failure

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "docker_streams"
R = Reason
RECORDED: dict[str, tuple[Reason, bool]] = {
    "bad_authconfig": (R.UNAUTHORIZED, False),
    "bad_reference": (R.INVALID_REFERENCE, False),
    "bad_tag": (R.INVALID_REFERENCE, False),
    "blob_404": (R.IMAGE_NOT_FOUND, False),
    "blob_429": (R.RATE_LIMITED, True),
    "blob_500_always": (R.REGISTRY_ERROR, True),
    "blob_corrupt_always": (R.DIGEST_MISMATCH, True),
    "config_corrupt": (R.DIGEST_MISMATCH, True),
    "conn_refused": (R.CONNECTION_REFUSED, True),
    "containerd_b500": (R.REGISTRY_ERROR, True),
    "containerd_blob404": (R.IMAGE_NOT_FOUND, False),
    "containerd_corrupt": (R.DIGEST_MISMATCH, True),
    "containerd_cut_once": (R.NETWORK, True),
    "containerd_m401": (R.UNAUTHORIZED, False),
    "containerd_m404": (R.IMAGE_NOT_FOUND, False),
    "containerd_m429": (R.RATE_LIMITED, True),
    "digest_wrong": (R.IMAGE_NOT_FOUND, False),
    "disk_full": (R.NO_SPACE, False),
    "dns_fail": (R.DNS, True),
    "manifest_401": (R.UNAUTHORIZED, False),
    "manifest_403": (R.ACCESS_DENIED, False),
    "manifest_404": (R.IMAGE_NOT_FOUND, False),
    "manifest_429": (R.RATE_LIMITED, True),
    "manifest_500": (R.REGISTRY_ERROR, True),
    "manifest_503_html": (R.REGISTRY_ERROR, True),
    "manifest_garbage": (R.REGISTRY_ERROR, True),
    "manifest_reset": (R.NETWORK, True),
    "ping_401_basic": (R.UNAUTHORIZED, False),
    "ping_401_bearer_deadrealm": (R.CONNECTION_REFUSED, True),
    "repo_404": (R.IMAGE_NOT_FOUND, False),
    "reset_always_midlayer": (R.NETWORK, True),
    "stall_ping": (R.NETWORK, True),
}

SAID: list[tuple[str, Reason, bool]] = [
    (
        "initializing source docker://127.0.0.1:5100/f10:nope: reading manifest nope in 127.0.0.1:5100/f10: "
        "manifest unknown: manifest unknown",
        R.IMAGE_NOT_FOUND,
        False,
    ),
    (
        'pinging container registry 127.0.0.1:5198: Get "https://127.0.0.1:5198/v2/": dial tcp 127.0.0.1:5198: '
        "connect: connection refused",
        R.CONNECTION_REFUSED,
        True,
    ),
    ('Get "https://h:429/v2/": dial tcp 10.0.0.1:429: connect: connection refused', R.CONNECTION_REFUSED, True),
    ("pull access denied for x, repository does not exist or may require 'docker login'", R.ACCESS_DENIED, False),
    ('Get "https://r/v2/": x509: certificate signed by unknown authority', R.TLS, False),
    ("http: server gave HTTP response to HTTPS client", R.TLS, False),
    ("no matching manifest for linux/amd64 in the manifest list entries", R.PLATFORM_MISMATCH, False),
    ("unexpected EOF", R.NETWORK, True),
    (
        'Get "https://r/v2/": dial tcp: lookup r on 10.0.0.2:53: read udp 10.0.0.1:9->10.0.0.2:53: i/o timeout',
        R.DNS,
        True,
    ),
    ("ConnectError: [Errno -2] Name or service not known", R.DNS, True),
    ("ConnectError: All connection attempts failed", R.CONNECTION_REFUSED, True),
    ("ConnectError: [SSL: WRONG_VERSION_NUMBER] wrong version number", R.TLS, False),
    ('Get "https://10.0.0.1/v2/": dial tcp 10.0.0.1:443: connect: no route to host', R.NETWORK, True),
    ("something that nobody has ever said", R.ENGINE_ERROR, True),
]


def words_of(name: str) -> str:
    """The engine's error in a recording."""
    found = []
    for line in (RECORDINGS / f"{name}.jsonl").read_text().splitlines():
        message = json.loads(line).get("m")
        if isinstance(message, dict):
            detail = message.get("errorDetail") or message
            found += [detail["message"]] if "message" in detail else []
    return str(found[-1])


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recorded_failure_has_its_reason(name: str) -> None:
    words = words_of(name)
    failure = pull_failure(words, image="app:1")
    assert (failure.reason, failure.retryable) == RECORDED[name]
    assert failure.message.startswith("app:1: ")
    assert " ".join(words.split())[:200] in failure.message


@pytest.mark.parametrize(("words", "reason", "retryable"), SAID)
def test_other_words(words: str, reason: Reason, retryable: bool) -> None:
    failure = pull_failure(words, image="app:1")
    assert (failure.reason, failure.retryable) == (reason, retryable)


def test_only_a_rate_limit_takes_the_registrys_own_delay() -> None:
    assert pull_failure("toomanyrequests", image="a", retry_after_seconds=3.0).retry_after_seconds == 3.0
    assert pull_failure("denied", image="a", retry_after_seconds=3.0).retry_after_seconds is None


@pytest.mark.parametrize("name", ["denied/x509", "unauthorized", "team/no-space-left/timeout", "rate/limit", "eof"])
@pytest.mark.parametrize("tag", ["429", "EOF", "denied"])
@pytest.mark.parametrize("host", ["", "127.0.0.1:429/"])
def test_the_images_own_name_says_nothing(host: str, name: str, tag: str) -> None:
    image = f"{host}{name}:{tag}"
    words = f"manifest for {image} not found: manifest unknown: manifest unknown"
    assert pull_failure(words, image=image).reason is R.IMAGE_NOT_FOUND
    words = (
        f'Get "https://{host or "r/"}v2/{name}/manifests/{tag}": dial tcp 127.0.0.1:429: connect: connection refused'
    )
    assert pull_failure(words, image=image).reason is R.CONNECTION_REFUSED
