"""What an agent's containers promise, tried on the fake and on a real engine of each store."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.contract.container_subjects import (
    RANDOM_BYTES,
    TEXT,
    Images,
    Subject,
    fake_subject,
    push_images,
    real_subject,
)
from tests.rig.eventually import eventually
from tests.rig.registry import RegistryProcess
from towline.domain.containers import LogTail, ReadLogs
from towline.domain.ids import container_name
from towline.domain.lifecycle import Reason
from towline.errors import ContainerError


@pytest.fixture(scope="module")
def images(registry: RegistryProcess) -> Images:
    return push_images(registry)


@pytest.fixture(params=["fake", "classic_engine", "containerd_engine"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "fake":
        opened = fake_subject()
    else:
        opened = real_subject(request.getfixturevalue(request.param), request.getfixturevalue("images"))
    async with opened as ready:
        yield ready


class TestStart:
    async def test_repeated_and_at_once_makes_one_container(self, subject: Subject) -> None:
        spec = subject.spec("sleep", "60")
        first = await subject.start(spec)
        others = await asyncio.gather(*(subject.start(spec) for _ in range(5)))
        assert {one.container_id for one in others} == {first.container_id}
        assert {one.started_at for one in others} == {first.started_at}
        assert subject.host.names() == {container_name(spec.session_id, 0)}

    async def test_a_command_that_is_done_is_not_run_again(self, subject: Subject) -> None:
        subject.ears.accepts = False
        spec = subject.spec("echo", "once")
        first = await subject.start(spec)
        await subject.ears.first(spec)
        assert await subject.start(spec) == first
        assert await subject.log(spec) == b"once\n"

    @pytest.mark.parametrize(
        ("command", "reason"),
        [(("nosuch", "x"), Reason.COMMAND_NOT_FOUND), ((), Reason.NO_COMMAND)],
    )
    async def test_what_cannot_start_is_refused_for_good_and_leaves_nothing(
        self, subject: Subject, command: tuple[str, ...], reason: Reason
    ) -> None:
        with pytest.raises(ContainerError) as raised:
            await subject.start(subject.spec(*command), image=subject.bare)
        assert (raised.value.reason, raised.value.retryable) == (reason, False)
        assert subject.host.names() == set()

    async def test_an_image_that_is_gone_is_said_so_and_never_pulled(self, subject: Subject) -> None:
        with pytest.raises(ContainerError) as raised:
            await subject.start(subject.spec("true"), image="127.0.0.1:1/gone:1")
        assert raised.value.reason is Reason.IMAGE_VANISHED
        assert subject.host.names() == set()

    async def test_a_strangers_container_of_that_name_is_left_alone(self, subject: Subject) -> None:
        spec = subject.spec("true")
        name = container_name(spec.session_id, 0)
        subject.host.put_foreign(name)
        with pytest.raises(ContainerError, match="not ours"):
            await subject.start(spec)
        assert (await subject.end(spec)).container_id is None
        assert subject.host.names() == {name}

    async def test_environment_values_arrive_byte_for_byte(self, subject: Subject) -> None:
        env = {"A B": "blank in the name", "Q": "'\"$(x)`\\", "E": "a=b=c", "L": "two\nlines", "U": "é漢🙂", "N": ""}
        subject.ears.accepts = False
        spec = subject.spec("env", env=env)
        await subject.start(spec)
        shown = (await subject.log(spec)).decode()
        assert all(f"{key}={value}\n" in shown for key, value in env.items())


class TestExit:
    async def test_is_told_with_its_code_and_log_and_the_container_removed(self, subject: Subject) -> None:
        spec = subject.spec("sh", "-c", "echo hello; exit 3")
        started = await subject.start(spec)
        exit_ = await subject.ears.first(spec)
        assert (exit_.exit_code, exit_.container_id, exit_.oom_killed) == (3, started.container_id, False)
        assert (exit_.log.data(), exit_.log.total_bytes, exit_.log.truncated) == (b"hello\n", 6, False)
        assert exit_.finished_at is not None
        await eventually(lambda: not subject.has(spec), timeout=10)

    async def test_that_is_not_accepted_keeps_the_container(self, subject: Subject) -> None:
        subject.ears.accepts = False
        spec = subject.spec("false")
        await subject.start(spec)
        assert (await subject.ears.first(spec)).exit_code == 1
        assert (await subject.end(spec)).exit_code == 1
        assert not subject.has(spec)

    async def test_by_removal_from_outside_is_told_too(self, subject: Subject) -> None:
        spec = subject.spec("sleep", "60")
        await subject.start(spec)
        subject.host.remove(container_name(spec.session_id, 0))
        assert (await subject.ears.first(spec)).exit_code == 137
        assert (await subject.end(spec)).exit_code is None

    async def test_leaves_the_tail_of_a_long_log(self, subject: Subject) -> None:
        subject.ears.accepts = False
        spec = subject.spec("sh", "-c", "cat /random; cat /random")
        await subject.start(spec)
        log = (await subject.ears.first(spec)).log
        written = 2 * RANDOM_BYTES
        assert (log.truncated, log.total_bytes) == (True, len(written))
        assert log.data() == written[-(1 << 20) :]


class TestEnd:
    async def test_lets_the_command_end_by_itself_and_tells_nobody_else(self, subject: Subject) -> None:
        spec = subject.spec("sh", "-c", "echo up; sleep 60")
        await subject.start(spec)
        await eventually(
            lambda: subject.containers.read_logs(ReadLogs(session_id=spec.session_id, kernel=0)), timeout=5
        )
        ended = await subject.end(spec, grace_seconds=1)
        assert ended.exit_code in (137, 143)
        assert ended.log.data() == b"up\n"
        assert not subject.has(spec)
        assert (await subject.end(spec)).exit_code is None
        assert subject.ears.of(spec) == []

    async def test_kills_what_ignores_it_when_the_grace_is_over(self, subject: Subject) -> None:
        spec = subject.spec("sh", "-c", "trap '' TERM; echo up; sleep 60; sleep 60")
        await subject.start(spec)
        await subject.wait_for_output(spec)
        begin = time.monotonic()
        assert (await subject.end(spec, grace_seconds=1)).exit_code == 137
        assert 0.9 < time.monotonic() - begin < 8
        assert not subject.has(spec)

    async def test_without_grace_kills_at_once(self, subject: Subject) -> None:
        spec = subject.spec("sleep", "60")
        await subject.start(spec)
        assert (await subject.end(spec, grace_seconds=0)).exit_code == 137

    async def test_five_at_once_all_succeed(self, subject: Subject) -> None:
        spec = subject.spec("sleep", "60")
        await subject.start(spec)
        ended = await asyncio.gather(*(subject.end(spec, grace_seconds=0) for _ in range(5)))
        assert 137 in {one.exit_code for one in ended}
        assert not subject.has(spec)

    async def test_of_what_is_not_there_is_a_success(self, subject: Subject) -> None:
        assert (await subject.end(subject.spec("true"))).exit_code is None


class TestLogs:
    @pytest.mark.parametrize(("path", "written"), [("/text", TEXT), ("/random", RANDOM_BYTES)], ids=["text", "bytes"])
    async def test_are_the_bytes_that_were_written(self, subject: Subject, path: str, written: bytes) -> None:
        subject.ears.accepts = False
        spec = subject.spec("cat", path)
        await subject.start(spec)
        assert await subject.log(spec) == written
        assert await subject.log(spec, limit_bytes=99_991) == written

    async def test_of_a_terminal_have_its_line_ends(self, subject: Subject) -> None:
        subject.ears.accepts = False
        spec = subject.spec("echo", "line", tty=True)
        await subject.start(spec)
        assert await subject.log(spec) == b"line\r\n"

    async def test_come_while_the_container_runs(self, subject: Subject) -> None:
        spec = subject.spec("sh", "-c", "echo one; sleep 60")
        await subject.start(spec)
        await subject.wait_for_output(spec)
        for offset, written in ((0, b"one\n"), (2, b"e\n"), (4, b"")):
            page = await subject.containers.read_logs(
                ReadLogs(session_id=spec.session_id, kernel=0, offset=offset, limit_bytes=100)
            )
            assert (LogTail(packed=page.packed).data(), page.next_offset, page.ended) == (written, 4, False)

    async def test_of_what_is_not_there_are_not_found(self, subject: Subject) -> None:
        page = await subject.containers.read_logs(ReadLogs(session_id=subject.spec().session_id, kernel=0, offset=9))
        assert (page.found, page.ended, page.next_offset) == (False, True, 9)
