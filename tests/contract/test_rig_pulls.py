"""Faults as a real engine meets them: what the tests of pulls rely on."""

import time
import zlib
from collections.abc import Callable

import pytest

from tests.rig.engines import Engine
from tests.rig.eventually import eventually_sync
from tests.rig.faults import (
    Cut,
    Ending,
    Fault,
    FaultRegistry,
    Flip,
    Garbage,
    RequireBasic,
    RequireBearer,
    Stall,
    Throttle,
    registry_error,
)
from tests.rig.images import ImageRecipe, Layer, Platform, PushedImage, push, push_index
from tests.rig.pulling import pull, pulling
from tests.rig.registry import TESTER, RegistryProcess

_BLOBS = "*/blobs/*"
_MANIFESTS = "*/manifests/*"
_WRONG = ("tester", "wrong")


@pytest.fixture
def faults(fault_registry: Callable[[], FaultRegistry]) -> FaultRegistry:
    return fault_registry()


@pytest.fixture
def image(request: pytest.FixtureRequest, registry: RegistryProcess) -> PushedImage:
    """An image of its own for each test, so that no layer is on the engine yet."""
    seed = zlib.crc32(request.node.nodeid.encode())
    layers = [Layer.busybox(files={"seed": str(seed).encode()}), Layer.random(mb=4, seed=seed)]
    repository = f"rig/pulls-{seed}"
    return push(registry.host, repository, "1", ImageRecipe(layers=layers, cmd=("echo", "hello")))


def _through(faults: FaultRegistry, image: PushedImage) -> str:
    return f"{faults.host}/{image.repository}:1"


def _big_blob(image: PushedImage) -> str:
    return f"*/blobs/{image.layers[1][0]}"


@pytest.fixture(params=["classic_engine", "containerd_engine"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


def test_a_pull_is_quick_transfers_each_layer_once_and_runs(
    engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    start = time.monotonic()
    pulled = pull(engine.socket, _through(faults, image))
    # Where the TLS hello of a pull from loopback is not refused at once, dockerd waits for ten seconds.
    assert time.monotonic() - start < 8
    assert pulled.succeeded, pulled.error
    bytes_by_digest = faults.stats().bytes_by_digest()
    assert {digest: bytes_by_digest[digest] for digest, _ in image.layers} == dict(image.layers)
    client = engine.client()
    assert client.containers.run(_through(faults, image), network_mode="none", remove=True) == b"hello\n"


def test_the_platform_is_chosen_from_an_index(engine: Engine, faults: FaultRegistry, registry: RegistryProcess) -> None:
    platforms = [Platform(architecture="arm", variant="v7"), Platform(), Platform(architecture="arm64", variant="v8")]
    recipes = [
        ImageRecipe(layers=(Layer.busybox(), Layer.random(mb=0.1, seed=seed)), cmd=("true",), platform=platform)
        for seed, platform in enumerate(platforms, start=900)
    ]
    index = push_index(registry.host, "rig/index", "1", recipes, with_attestation=True)
    assert pull(engine.socket, f"{faults.host}/rig/index:1").succeeded
    asked_for = {exchange.digest for exchange in faults.stats().of(method="GET", path_part="/blobs/")}
    assert index.images[1].layers[1][0] in asked_for
    assert index.images[0].layers[1][0] not in asked_for
    assert index.images[2].layers[1][0] not in asked_for


def test_a_stalled_pull_moves_no_byte_and_the_next_one_asks_anew(
    engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    faults.on(Stall(after_bytes=1_500_000), path=_big_blob(image), method="GET", last=1)
    digest = image.layers[1][0]
    with pulling(engine.socket, _through(faults, image)):
        eventually_sync(lambda: faults.stats().bytes_by_digest().get(digest) == 1_500_000, timeout=10)
    # The classic store may hold its silent connection open, but does not wait for it.
    assert pull(engine.socket, _through(faults, image)).succeeded
    stalled, fresh = faults.stats().of(method="GET", digest=digest)
    assert stalled.body_bytes == 1_500_000
    assert fresh.ending is Ending.DONE


def test_a_cancelled_throttled_pull_stops_the_counter(
    engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    faults.on(Throttle(bytes_per_second=500_000), path=_big_blob(image))
    digest = image.layers[1][0]
    with pulling(engine.socket, _through(faults, image)):
        eventually_sync(lambda: faults.stats().bytes_by_digest().get(digest, 0) > 500_000, timeout=10)
    eventually_sync(lambda: not faults.stats().open, timeout=2)
    assert faults.stats().bytes_by_digest()[digest] < image.layers[1][1]


def test_the_classic_store_resumes_a_cut_by_itself(
    classic_engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    faults.on(Cut(after_bytes=3_000_000), path=_big_blob(image), method="GET", last=1)
    assert pull(classic_engine.socket, _through(faults, image)).succeeded
    first, second = faults.stats().of(method="GET", digest=image.layers[1][0])
    assert (first.ending, first.body_bytes) == (Ending.CUT, 3_000_000)
    assert second.range.startswith("bytes=")
    assert second.body_bytes < image.layers[1][1]


def test_the_containerd_store_resumes_after_a_cancel(
    containerd_engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    # Of less than about 1 MiB nothing is kept.
    rule = faults.on(Throttle(bytes_per_second=1_000_000), path=_big_blob(image))
    digest = image.layers[1][0]
    with pulling(containerd_engine.socket, _through(faults, image)):
        eventually_sync(lambda: faults.stats().bytes_by_digest().get(digest, 0) > 2_500_000, timeout=10)
    eventually_sync(lambda: not faults.stats().open, timeout=5)
    faults.remove(rule)
    assert pull(containerd_engine.socket, _through(faults, image)).succeeded
    assert faults.stats().of(method="GET", digest=digest)[-1].range.startswith("bytes=")


def test_the_containerd_store_fails_at_a_cut_and_the_next_pull_brings_the_rest_or_all(
    containerd_engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    faults.on(Cut(after_bytes=3_000_000), path=_big_blob(image), method="GET", last=1)
    assert not pull(containerd_engine.socket, _through(faults, image)).succeeded
    assert pull(containerd_engine.socket, _through(faults, image)).succeeded
    digest, size = image.layers[1]
    last = faults.stats().of(method="GET", digest=digest)[-1]
    assert last.body_bytes in {size, size - 3_000_000}


def test_a_flipped_byte_fails_the_verification(engine: Engine, faults: FaultRegistry, image: PushedImage) -> None:
    faults.on(Flip(offset=2_000_000), path=_big_blob(image))
    pulled = pull(engine.socket, _through(faults, image))
    assert pulled.status == 200
    assert "filesystem layer verification failed" in pulled.error or "unexpected commit digest" in pulled.error


@pytest.mark.parametrize(
    ("fault", "path", "text"),
    [
        (registry_error(401, "UNAUTHORIZED", "go away"), _MANIFESTS, "unauthorized"),
        (registry_error(403, "DENIED", "no entry"), _MANIFESTS, "denied"),
        (registry_error(404, "MANIFEST_UNKNOWN", "manifest unknown"), _MANIFESTS, "manifest unknown"),
        (
            registry_error(429, "TOOMANYREQUESTS", "slow down", headers={"Retry-After": "1"}),
            _MANIFESTS,
            "toomanyrequests",
        ),
        (registry_error(404, "BLOB_UNKNOWN", "blob unknown"), _BLOBS, "unknown blob"),
        (registry_error(429, "TOOMANYREQUESTS", "slow down"), _BLOBS, "toomanyrequests"),
        (Garbage(), _MANIFESTS, "invalid character"),
    ],
)
def test_what_the_classic_engine_says_to_a_refusal(
    classic_engine: Engine, faults: FaultRegistry, image: PushedImage, fault: Fault, path: str, text: str
) -> None:
    faults.on(fault, path=path)
    pulled = pull(classic_engine.socket, _through(faults, image))
    assert not pulled.succeeded
    assert text in pulled.error


def test_a_blob_that_fails_once_is_asked_for_again(
    classic_engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    faults.on(registry_error(503, "UNAVAILABLE", "later"), path=_big_blob(image), last=1)
    assert pull(classic_engine.socket, _through(faults, image)).succeeded
    assert [exchange.status for exchange in faults.stats().of(digest=image.layers[1][0])] == [503, 200]


@pytest.mark.parametrize(
    "door",
    [
        RequireBasic(user=TESTER.user, password=TESTER.password),
        RequireBearer(user=TESTER.user, password=TESTER.password),
    ],
    ids=["basic", "bearer"],
)
def test_credentials_open_the_door_and_nothing_else_does(
    engine: Engine, faults: FaultRegistry, image: PushedImage, door: Fault
) -> None:
    faults.on(door)
    reference = _through(faults, image)
    assert not pull(engine.socket, reference).succeeded
    assert not pull(engine.socket, reference, auth=_WRONG).succeeded
    assert faults.stats().of(method="GET", path_part="/blobs/") == ()
    right = pull(engine.socket, reference, auth=TESTER.auth)
    assert right.succeeded, right.error


def test_a_token_opens_only_the_repositories_of_its_account(
    engine: Engine, faults: FaultRegistry, image: PushedImage
) -> None:
    faults.on(RequireBearer(user=TESTER.user, password=TESTER.password, repositories=("other/*",)))
    assert not pull(engine.socket, _through(faults, image), auth=TESTER.auth).succeeded


def test_anonymous_tokens_open_a_public_registry(engine: Engine, faults: FaultRegistry, image: PushedImage) -> None:
    faults.on(RequireBearer())
    pulled = pull(engine.socket, _through(faults, image))
    assert pulled.succeeded, pulled.error


def test_a_dead_token_endpoint_is_named(classic_engine: Engine, faults: FaultRegistry, image: PushedImage) -> None:
    faults.on(RequireBearer(realm="http://127.0.0.1:1/token"))
    assert "dial tcp 127.0.0.1:1" in pull(classic_engine.socket, _through(faults, image)).error
