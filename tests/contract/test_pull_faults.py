"""Every fault of a registry, on a real engine of each image store: the right reason, in bounded time, and no byte after."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator

import pytest

from tests.contract.pull_subjects import BLOBS, MANIFESTS, Pulling, pulling_on
from tests.rig.eventually import eventually
from tests.rig.faults import (
    Answer,
    Cut,
    FaultRegistry,
    Flip,
    Garbage,
    NeverAnswer,
    RequireBasic,
    Stall,
    Throttle,
    registry_error,
)
from tests.rig.faults.kinds import Fault
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.ports import own_address
from tests.rig.registry import RegistryProcess
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullPhase, PullProgress, Verdict
from towline.domain.pulling import CheckAndPull, CheckImage
from towline.domain.sessions import PullPolicy

R = Reason


@pytest.fixture(params=["classic_engine", "containerd_engine"])
async def pulling(request: pytest.FixtureRequest) -> AsyncIterator[Pulling]:
    async with pulling_on(request.getfixturevalue(request.param)) as ready:
        yield ready


_SEEDS = itertools.count(5000, 2)


@pytest.fixture
def image(registry: RegistryProcess) -> PushedImage:
    """New content for each test: the containerd store keeps what it got of a blob, corrupt bytes too, and would fail the next
    pull of the same digest with them."""
    seed = next(_SEEDS)
    layers = (
        Layer.busybox(files={"seed": str(seed).encode()}),
        Layer.random(mb=3, seed=seed),
        Layer.random(mb=2, seed=seed + 1),
    )
    return push(registry.host, "contract/faults", str(seed), ImageRecipe(layers=layers))


FINAL = {R.IMAGE_NOT_FOUND, R.UNAUTHORIZED, R.ACCESS_DENIED}
FAULTS: list[tuple[str, Fault, str, set[Reason], float]] = [
    ("manifest 404", registry_error(404, "MANIFEST_UNKNOWN", "manifest unknown"), MANIFESTS, {R.IMAGE_NOT_FOUND}, 10),
    ("manifest 401", registry_error(401, "UNAUTHORIZED", "unauthorized"), MANIFESTS, {R.UNAUTHORIZED}, 10),
    ("manifest 403", registry_error(403, "DENIED", "denied"), MANIFESTS, {R.ACCESS_DENIED}, 10),
    ("manifest 429", registry_error(429, "TOOMANYREQUESTS", "slow down"), MANIFESTS, {R.RATE_LIMITED}, 20),
    ("manifest 500", registry_error(500, "UNKNOWN", "boom"), MANIFESTS, {R.REGISTRY_ERROR}, 20),
    ("manifest garbage", Garbage(), MANIFESTS, {R.REGISTRY_ERROR, R.DIGEST_MISMATCH, R.IMAGE_NOT_FOUND}, 20),
    ("manifest never answered", NeverAnswer(), MANIFESTS, {R.PULL_STALLED}, 60),
    ("blob 404", registry_error(404, "BLOB_UNKNOWN", "blob unknown"), BLOBS, {R.IMAGE_NOT_FOUND}, 10),
    ("blob 401", registry_error(401, "UNAUTHORIZED", "unauthorized"), BLOBS, {R.UNAUTHORIZED}, 10),
    ("blob 403", registry_error(403, "DENIED", "denied"), BLOBS, {R.ACCESS_DENIED}, 10),
    ("blob 429", registry_error(429, "TOOMANYREQUESTS", "slow down"), BLOBS, {R.RATE_LIMITED}, 30),
    # The classic store makes six tries of its own, in 75 s.
    ("blob 500", Answer(status=500, body="boom"), "*/blobs/{layer}", {R.REGISTRY_ERROR}, 110),
    ("blob corrupt", Flip(offset=1000), BLOBS, {R.DIGEST_MISMATCH}, 30),
    ("blob stalls", Stall(after_bytes=500_000), BLOBS, {R.PULL_STALLED}, 30),
    ("blob header never comes", NeverAnswer(), BLOBS, {R.PULL_STALLED}, 30),
    ("no credential", RequireBasic(user="u", password="p"), "*", {R.UNAUTHORIZED}, 10),
]


@pytest.mark.parametrize(("what", "fault", "path", "reasons", "seconds"), FAULTS, ids=[row[0] for row in FAULTS])
async def test_a_fault_has_its_reason_in_bounded_time_and_leaves_no_transfer(
    pulling: Pulling,
    registry: RegistryProcess,
    image: PushedImage,
    what: str,
    fault: Fault,
    path: str,
    reasons: set[Reason],
    seconds: float,
) -> None:
    with FaultRegistry(registry.host) as faults:
        faults.on(fault, path=path.format(layer=image.layers[1][0]))
        begun = time.monotonic()
        error = await pulling.fails(image.reference.replace(registry.host, faults.host))
        assert error.reason in reasons, error.message
        assert time.monotonic() - begun < seconds
        assert error.report is not None
        assert error.report.attempts == (1 if error.reason in FINAL or "the engine's own" in error.message else 2)
        assert not error.retryable, "what could be tried again has been"
        if isinstance(fault, Stall | NeverAnswer):
            faults.clear()  # What was held would flow now, if anybody still wanted it.
            await _after(2.0)
            before = faults.body_bytes
            await _after(0.7)
            assert faults.body_bytes == before
    assert pulling.images.running_pulls() == 0


async def _after(seconds: float) -> None:
    end = time.monotonic() + seconds
    await eventually(lambda: time.monotonic() >= end, timeout=seconds + 5)


async def test_a_cut_transfer_is_taken_up_and_succeeds(
    pulling: Pulling, registry: RegistryProcess, image: PushedImage
) -> None:
    with FaultRegistry(registry.host) as faults:
        faults.on(Cut(after_bytes=1_500_000), path=BLOBS, method="GET", first=2, last=2)
        await pulling.pull(image.reference.replace(registry.host, faults.host))
    _check_honesty(pulling.seen)


async def test_bytes_to_pull_are_known_before_the_first_and_served_exactly(
    pulling: Pulling, registry: RegistryProcess, image: PushedImage
) -> None:
    with FaultRegistry(registry.host) as faults:
        name = image.reference.replace(registry.host, faults.host)
        check = await pulling.images.check(CheckImage(session_id="s", image=name, policy=PullPolicy.IF_NOT_PRESENT))
        assert (check.present, check.digest, check.total_is_final) == (False, image.manifest_digest, True)
        await pulling.pull(name, digest=check.digest)
        served = sum(faults.stats().bytes_by_digest().get(digest, 0) for digest, _ in image.layers)
        assert check.bytes_to_pull == pytest.approx(served, rel=0.01)
        again = await pulling.images.check(CheckImage(session_id="s", image=name, policy=PullPolicy.ALWAYS))
        assert (again.present, again.digest) == (True, image.manifest_digest)
    _check_honesty(pulling.seen)


def _check_honesty(seen: list[PullProgress]) -> None:
    assert all((progress.percent == 100) == (progress.phase is PullPhase.DONE) for progress in seen)
    assert all((progress.percent or 0) <= 100 for progress in seen)
    assert seen[-1].phase is PullPhase.DONE
    for earlier, later in itertools.pairwise(seen):
        assert later.bytes_done >= earlier.bytes_done or later.restarts > earlier.restarts


@pytest.mark.parametrize(
    ("fault", "path"),
    [(Stall(after_bytes=200_000), BLOBS), (NeverAnswer(), BLOBS), (NeverAnswer(), MANIFESTS)],
    ids=["in mid-blob", "before a blob", "before the manifest"],
)
async def test_an_abort_works_while_the_engine_is_silent(
    pulling: Pulling, registry: RegistryProcess, image: PushedImage, fault: Fault, path: str
) -> None:
    with FaultRegistry(registry.host) as faults:
        faults.on(fault, path=path, method="GET")
        faults.on(fault, path=path, method="HEAD")
        waiting = asyncio.create_task(
            pulling.pull(image.reference.replace(registry.host, faults.host), digest=image.manifest_digest)
        )
        await eventually(lambda: len(faults.stats().exchanges) >= 1, timeout=20)
        await _after(0.5)
        asked = time.monotonic()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert time.monotonic() - asked < 2
        await eventually(lambda: "pull" not in [thread.name for thread in threading.enumerate()], timeout=1)


async def test_twenty_waiters_share_one_transfer_and_leave_as_they_like(
    pulling: Pulling, registry: RegistryProcess, image: PushedImage
) -> None:
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(total_bytes_per_second=2_500_000), path=BLOBS)
        name = image.reference.replace(registry.host, faults.host)
        waiters = [asyncio.create_task(pulling.pull(name, f"w{number}", image.manifest_digest)) for number in range(20)]
        await eventually(lambda: bool(pulling.seen) and pulling.seen[-1].waiters == 20, timeout=20)
        for waiter in waiters[:15]:
            waiter.cancel()
        await asyncio.gather(*waiters[15:])
        for digest, _ in image.layers:
            assert len(faults.stats().of(method="GET", digest=digest)) <= 1


async def test_the_last_of_fifty_takes_the_transfer_with_it(
    pulling: Pulling, registry: RegistryProcess, image: PushedImage
) -> None:
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(total_bytes_per_second=300_000), path=BLOBS)
        name = image.reference.replace(registry.host, faults.host)
        waiters = [asyncio.create_task(pulling.pull(name, f"w{number}", image.manifest_digest)) for number in range(50)]
        await eventually(lambda: bool(pulling.seen) and pulling.seen[-1].waiters == 50, timeout=20)
        for waiter in waiters[:49]:
            waiter.cancel()
        await asyncio.wait(waiters[:49])
        before = faults.body_bytes
        await eventually(lambda: faults.body_bytes > before, timeout=10)
        waiters[49].cancel()
        await asyncio.wait(waiters)
        await _after(2.0)
        before = faults.body_bytes
        await _after(0.7)
        assert faults.body_bytes == before
        for digest, _ in image.layers:
            assert len(faults.stats().of(method="GET", digest=digest)) <= 1


async def test_slow_is_not_stuck(pulling: Pulling, registry: RegistryProcess, image: PushedImage) -> None:
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(total_bytes_per_second=600_000), path=BLOBS)
        name = image.reference.replace(registry.host, faults.host)
        await pulling.by_default.pull(CheckAndPull(waiter="w", image=name), pulling.seen.append)
    assert {progress.verdict for progress in pulling.seen} <= {Verdict.HEALTHY, Verdict.WAITING}
    assert {progress.attempt for progress in pulling.seen} == {1}


async def test_a_daemon_that_dies_in_mid_pull_is_waited_for(
    pulling: Pulling, registry: RegistryProcess, image: PushedImage
) -> None:
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(total_bytes_per_second=1_500_000), path=BLOBS)
        name = image.reference.replace(registry.host, faults.host)
        waiting = asyncio.create_task(pulling.pull(name, digest=image.manifest_digest))
        await eventually(lambda: bool(pulling.seen) and pulling.seen[-1].bytes_done > 0, timeout=20)
        await asyncio.to_thread(pulling.real.kill)
        await eventually(lambda: pulling.seen[-1].verdict is Verdict.RETRYING, timeout=20)
        await asyncio.to_thread(pulling.real.start)
        await asyncio.wait_for(waiting, 60)
    assert pulling.seen[-1].attempt == 2


async def test_a_registry_that_refuses_connections(pulling: Pulling) -> None:
    error = await pulling.fails("127.0.0.1:9/nobody/listens:1")
    assert error.reason is R.CONNECTION_REFUSED


async def test_a_registry_whose_name_nobody_knows(pulling: Pulling) -> None:
    error = await pulling.fails("registry.invalid/nobody/answers:1")
    assert error.reason is R.DNS, error.message


async def test_a_registry_that_speaks_no_tls(pulling: Pulling) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    # Engines take a registry on a loopback address without TLS.
    server = await asyncio.start_server(answer, own_address(), 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        error = await pulling.fails(f"{host}:{port}/speaks/plainly:1")
    assert error.reason is R.TLS, error.message
    assert error.report is not None
    assert error.report.attempts == 1


async def test_retry_after_is_honoured(pulling: Pulling, registry: RegistryProcess, image: PushedImage) -> None:
    with FaultRegistry(registry.host) as faults:
        limited = registry_error(429, "TOOMANYREQUESTS", "slow down", headers={"Retry-After": "3"})
        active = faults.on(limited, path=MANIFESTS)
        waiting = asyncio.create_task(pulling.pull(image.reference.replace(registry.host, faults.host)))
        await eventually(lambda: bool(pulling.seen) and pulling.seen[-1].verdict is Verdict.RETRYING, timeout=10)
        assert (pulling.seen[-1].retry_in_seconds or 0) > 2.2
        faults.remove(active)
        await asyncio.wait_for(waiting, 30)
