"""Exits on a real engine: every one is told, as what it was, and only what was accepted is removed."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from tests.contract.container_subjects import AGENT_ID, Images, RealSubject, push_images, real_subject
from tests.rig.engines import Engine, EngineOptions, classic_engine
from tests.rig.eventually import eventually
from tests.rig.registry import RegistryProcess
from towline.domain.containers import LogTail, ReadLogs
from towline.domain.ids import container_labels, container_name, new_id, new_session_id
from towline.domain.sessions import Resources


@pytest.fixture(scope="module")
def images(registry: RegistryProcess) -> Images:
    return push_images(registry)


@pytest.fixture(params=["classic_engine", "containerd_engine"])
async def subject(request: pytest.FixtureRequest, images: Images) -> AsyncIterator[RealSubject]:
    async with real_subject(request.getfixturevalue(request.param), images, watching=False) as ready:
        yield ready


@pytest.fixture(name="classic")
async def _classic(classic_engine: Engine, images: Images) -> AsyncIterator[RealSubject]:
    async with real_subject(classic_engine, images, watching=False) as ready:
        yield ready


class TestMemory:
    async def test_that_ran_out_is_said_so(self, subject: RealSubject) -> None:
        greedy = "x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo survived"
        spec = subject.spec("sh", "-c", greedy, resources=Resources(cpu=1, memory_bytes=20 << 20))
        async with subject.watching():
            await subject.start(spec)
            exit_ = await subject.ears.first(spec)
        assert (exit_.exit_code, exit_.oom_killed) == (137, True)

    async def test_is_not_blamed_for_a_kill(self, subject: RealSubject) -> None:
        spec = subject.spec("sleep", "60")
        async with subject.watching():
            started = await subject.start(spec)
            subject.client.kill(started.container_id, "SIGKILL")
            exit_ = await subject.ears.first(spec)
        assert (exit_.exit_code, exit_.oom_killed) == (137, False)


class TestWatch:
    async def test_finds_what_ended_while_nobody_watched_and_stops_nothing(self, subject: RealSubject) -> None:
        ended, running = subject.spec("sh", "-c", "exit 4"), subject.spec("sleep", "60")
        await subject.start(ended)
        started = await subject.start(running)
        await eventually(lambda: _has_exited(subject, ended.session_id), timeout=10)
        async with subject.watching():
            assert (await subject.ears.first(ended)).exit_code == 4
        assert await subject.start(running) == started
        assert subject.ears.of(running) == []

    async def test_tells_again_what_could_not_be_told(self, classic: RealSubject) -> None:
        classic.ears.failures = [ConnectionError("Temporal is away"), RuntimeError("something else")]
        spec = classic.spec("sh", "-c", "exit 5")
        async with classic.watching(look_every_seconds=0.5):
            await classic.start(spec)
            await eventually(lambda: not classic.has(spec), timeout=15)
        assert [exit_.exit_code for exit_ in classic.ears.of(spec)] == [5, 5, 5]

    async def test_misses_none_of_many(self, subject: RealSubject) -> None:
        specs = [subject.spec("sh", "-c", f"exit {code}") for code in range(30)]
        async with subject.watching():
            await asyncio.gather(*(subject.start(spec) for spec in specs))
            await eventually(lambda: subject.host.names() == set(), timeout=60)
        assert [subject.ears.of(spec)[-1].exit_code for spec in specs] == list(range(30))

    async def test_leaves_the_containers_of_others_alone(self, classic: RealSubject) -> None:
        name = container_name(new_session_id(), 0)
        labels = container_labels(
            fleet_id=new_id("flt"), agent_id=AGENT_ID, session_id=new_session_id(), kernel=0, owner="else"
        )
        for given, its_labels in ((name, {}), ("of-another-fleet", labels)):
            _run_to_end(classic, given, its_labels)
        async with classic.watching(look_every_seconds=0.2):
            spec = classic.spec("true")
            await classic.start(spec)
            await classic.ears.first(spec)
            await eventually(lambda: not classic.has(spec), timeout=10)
        assert {session_id for session_id, _ in classic.ears.heard} == {spec.session_id}
        assert classic.host.names() == {name, "of-another-fleet"}

    async def test_tells_what_vanished_unseen(self, classic: RealSubject) -> None:
        spec, there = classic.spec(), classic.spec("sleep", "60")
        await classic.start(there)

        async def missing(present: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
            return {(spec.session_id, 0), (there.session_id, 0)} - set(present)

        async with classic.watching(look_every_seconds=0.3, missing=missing):
            exit_ = await classic.ears.first(spec)
        assert exit_.exit_code is None
        assert "gone" in exit_.message
        assert classic.ears.of(there) == []

    async def test_lets_readers_come_to_the_end_before_it_removes(self, classic: RealSubject) -> None:
        count = 60_000
        spec = classic.spec("sh", "-c", f"i=0; while [ $i -lt {count} ]; do echo line $i; i=$((i+1)); done")
        async with classic.watching():
            await classic.start(spec)
            log = await classic.log(spec)
            await eventually(lambda: not classic.has(spec), timeout=10)
        assert log == b"".join(b"line %d\n" % number for number in range(count))

    async def test_leaves_no_thread_behind(self, classic: RealSubject) -> None:
        spec = classic.spec("true")
        for _ in range(5):
            async with classic.watching():
                await eventually(lambda: "events" in _threads(), timeout=5)
            await eventually(lambda: "events" not in _threads(), timeout=2)
        await classic.start(spec)
        await classic.containers.read_logs(ReadLogs(session_id=spec.session_id, kernel=0))
        classic.containers.close()
        await eventually(lambda: "log" not in _threads(), timeout=2)


@pytest.mark.parametrize("live_restore", [False, True])
async def test_an_engine_that_is_killed_and_started_loses_no_exit(
    tmp_path: Path, images: Images, live_restore: bool
) -> None:
    with classic_engine(tmp_path, EngineOptions(live_restore=live_restore)) as engine:
        async with real_subject(engine, images) as subject:
            # Without live restore the engine, once it is back, kills what has outlived it.
            spec = subject.spec("sh", "-c", f"echo before; sleep {4 if live_restore else 60}; echo after; exit 6")
            await subject.start(spec)
            await subject.wait_for_output(spec)
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(engine.start)
            exit_ = await subject.ears.first(spec, timeout=30)
            await eventually(lambda: not subject.has(spec), timeout=10)
    if live_restore:
        assert (exit_.exit_code, exit_.log.data()) == (6, b"before\nafter\n")
    else:
        assert (exit_.exit_code, exit_.log.data()) == (137, b"before\n")
    assert not exit_.oom_killed


async def test_a_log_that_breaks_off_is_not_at_its_end(tmp_path: Path, images: Images) -> None:
    with classic_engine(tmp_path, EngineOptions(live_restore=True)) as engine:
        async with real_subject(engine, images) as subject:
            spec = subject.spec("sh", "-c", "echo one; sleep 4; echo two; sleep 60")
            await subject.start(spec)
            await subject.wait_for_output(spec)
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(engine.start)

            async def reads_on() -> None:
                request = ReadLogs(session_id=spec.session_id, kernel=0, offset=4)
                page = await subject.containers.read_logs(request)
                assert (page.found, page.ended, LogTail(packed=page.packed).data()) == (True, False, b"two\n")

            await eventually(reads_on, timeout=20)


def _has_exited(subject: RealSubject, session_id: str) -> bool:
    return bool(subject.client.inspect_container(container_name(session_id, 0))["State"]["Status"] == "exited")


def _run_to_end(subject: RealSubject, name: str, labels: dict[str, str]) -> None:
    config = subject.client.create_host_config(network_mode="none")
    created = subject.client.create_container(subject.image, ["true"], name=name, labels=labels, host_config=config)
    subject.client.start(created["Id"])
    subject.client.wait(created["Id"])


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]
