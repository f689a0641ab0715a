"""Containers on an engine whose answers get lost, late, or do not come: never one too many, never one too few."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from docker.errors import APIError

from tests.contract.container_subjects import Images, RealSubject, push_images, real_subject
from tests.rig.engines import Engine, ProxySocket
from tests.rig.eventually import eventually
from tests.rig.faults import Cut, Delay, NeverAnswer
from tests.rig.registry import RegistryProcess
from towline.domain.ids import container_name
from towline.domain.lifecycle import Reason
from towline.errors import EngineError


@pytest.fixture(scope="module")
def images(registry: RegistryProcess) -> Images:
    return push_images(registry)


@pytest.fixture
def proxy(classic_engine: Engine) -> Iterator[ProxySocket]:
    with ProxySocket(classic_engine.socket) as running:
        yield running


@pytest.fixture
async def subject(classic_engine: Engine, images: Images, proxy: ProxySocket) -> AsyncIterator[RealSubject]:
    async with real_subject(
        classic_engine, images, url=proxy.url, watching=False, call_timeout_seconds=1, starts_max=1
    ) as ready:
        yield ready


@pytest.mark.parametrize("path", ["*/containers/create", "*/containers/*/start"])
async def test_a_lost_answer_makes_no_second_container(subject: RealSubject, proxy: ProxySocket, path: str) -> None:
    lost = proxy.on(Cut(), path=path, method="POST", last=1)
    spec = subject.spec("sleep", "60")
    with pytest.raises(EngineError) as raised:
        await subject.start(spec)
    assert raised.value.retryable
    assert lost.struck == 1
    started = await subject.start(spec)
    assert started.started_at is not None
    assert [one.container_id for one in await subject.containers.list_ours()] == [started.container_id]


async def test_a_lost_answer_to_the_start_of_a_short_command_does_not_run_it_twice(
    subject: RealSubject, proxy: ProxySocket
) -> None:
    proxy.on(Cut(), path="*/containers/*/start", method="POST", last=1)
    spec = subject.spec("echo", "once")
    with pytest.raises(EngineError):
        await subject.start(spec)
    await eventually(lambda: _state(subject, spec.session_id) == "exited", timeout=10)
    await subject.start(spec)
    assert (await subject.end(spec)).log.data() == b"once\n"


async def test_an_end_after_a_cancelled_start_finds_what_the_start_still_makes(
    subject: RealSubject, proxy: ProxySocket
) -> None:
    slow = proxy.on(Delay(seconds=1), path="*/containers/create", method="POST")
    spec = subject.spec("sleep", "60")
    start = asyncio.create_task(subject.start(spec))
    await eventually(lambda: slow.struck == 1, timeout=10)
    start.cancel()
    await asyncio.wait({start}, timeout=0.5)
    assert start.cancelled()
    assert (await subject.end(spec, grace_seconds=0)).container_id is not None
    assert subject.host.names() == set()


async def test_a_start_that_is_cancelled_while_it_waits_makes_nothing(subject: RealSubject, proxy: ProxySocket) -> None:
    slow = proxy.on(Delay(seconds=1), path="*/containers/create", method="POST")
    first, second = subject.spec("sleep", "60"), subject.spec("sleep", "60")
    starts = [asyncio.create_task(subject.start(spec)) for spec in (first, second)]
    await eventually(lambda: slow.struck == 1, timeout=10)
    starts[1].cancel()
    await starts[0]
    assert subject.host.names() == {container_name(first.session_id, 0)}


async def test_a_failed_start_is_told_as_such_when_its_removal_fails_too(
    subject: RealSubject, proxy: ProxySocket
) -> None:
    proxy.on(Cut(), path="*/containers/*", method="DELETE", last=1)
    with pytest.raises(EngineError) as raised:
        await subject.start(subject.spec("nosuch"))
    assert raised.value.reason is Reason.COMMAND_NOT_FOUND


async def test_an_engine_that_is_away_is_waited_for(subject: RealSubject, proxy: ProxySocket) -> None:
    spec = subject.spec("sleep", "60")
    started = await subject.start(spec)
    proxy.stop()
    for attempt in (subject.start(spec), subject.end(spec)):
        with pytest.raises(EngineError) as raised:
            await attempt
        assert (raised.value.reason, raised.value.retryable) == (Reason.ENGINE_UNAVAILABLE, True)
    proxy.start()
    assert (await subject.start(spec)) == started


async def test_an_engine_that_hangs_is_named_in_time_and_no_threads_pile_up(
    subject: RealSubject, proxy: ProxySocket
) -> None:
    spec = subject.spec("sleep", "60")
    await subject.start(spec)
    proxy.on(NeverAnswer())
    threads = []
    for _ in range(3):
        begin = time.monotonic()
        hung = await asyncio.gather(*(subject.end(subject.spec()) for _ in range(10)), return_exceptions=True)
        assert time.monotonic() - begin < 8
        assert {error.reason for error in hung if isinstance(error, EngineError)} == {Reason.ENGINE_UNRESPONSIVE}
        assert all(isinstance(error, EngineError) and error.retryable for error in hung)
        threads.append(threading.active_count())
    assert threads[2] <= threads[0] + 2  # 30 hung calls, of which 10 at a time needed a thread
    proxy.clear()
    assert (await subject.end(spec, grace_seconds=0)).exit_code == 137


async def test_a_grace_longer_than_the_deadline_of_calls_is_given(subject: RealSubject) -> None:
    spec = subject.spec("sh", "-c", "trap '' TERM; echo up; sleep 60; sleep 60")
    await subject.start(spec)
    await subject.wait_for_output(spec)
    begin = time.monotonic()
    assert (await subject.end(spec, grace_seconds=4)).exit_code == 137
    assert time.monotonic() - begin > 3.9


async def test_a_removal_that_is_under_way_already_is_a_success(subject: RealSubject) -> None:
    spec = subject.spec("sleep", "60")
    started = await subject.start(spec)

    def remove_from_outside() -> None:
        with contextlib.suppress(APIError):  # Whoever comes second is told that it is under way.
            subject.client.remove_container(started.container_id, force=True)

    await asyncio.gather(
        asyncio.to_thread(remove_from_outside), *(subject.containers.remove(started.container_id) for _ in range(5))
    )
    assert subject.host.names() == set()


def _state(subject: RealSubject, session_id: str) -> str:
    return str(subject.client.inspect_container(container_name(session_id, 0))["State"]["Status"])
