"""The adapter against an engine that says whatever it likes, or nothing."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.scripted_engine import Conversation, ScriptedEngine
from tests.rig.eventually import eventually
from towline.engine.pull_stream import PullRequest, PullStream, StreamEnd

LINES = [{"status": "Pulling from library/x", "id": "1"}, {"status": "Status: Downloaded newer image for x:1"}]


async def read(engine: ScriptedEngine) -> tuple[StreamEnd, list[dict[str, Any]]]:
    messages: list[dict[str, Any]] = []
    stream = PullStream(engine.url, "1.41", PullRequest(repository="docker.io/library/x", reference="1"))
    return await asyncio.wait_for(stream.run(messages.append), 20), messages


def in_good_order(talk: Conversation) -> None:
    talk.say(*LINES)
    talk.end_well()


def cut_in_a_line(talk: Conversation) -> None:
    talk.say_raw(b'{"status":"Pulling from library/x","i')
    talk.say_raw(b'd":"1"}\r\nnoise\r\n{"status":"Status: Downloaded newer')
    talk.say_raw(b' image for x:1"}\r\n')
    talk.end_well()


def in_one_piece(talk: Conversation) -> None:
    talk.answer(LINES[1])


def truncated(talk: Conversation) -> None:
    talk.say(LINES[0])
    talk.hang_up()


def silent_in_mid_stream(talk: Conversation) -> None:
    talk.say(LINES[0])
    talk.be_silent()


def silent_before_the_headers(talk: Conversation) -> None:
    talk.be_silent()


@pytest.fixture
def engine_that(tmp_path: Path) -> Callable[[Callable[[Conversation], None]], ScriptedEngine]:
    return lambda pull: ScriptedEngine(socket=tmp_path / "d.sock", pull=pull)


class TestReading:
    @pytest.mark.parametrize("pull", [in_good_order, cut_in_a_line])
    async def test_every_message_arrives_however_the_body_is_cut(self, engine_that: Any, pull: Any) -> None:
        with engine_that(pull) as engine:
            assert await read(engine) == (StreamEnd(), LINES)

    async def test_a_body_that_is_not_chunked_is_read_too(self, engine_that: Any) -> None:
        with engine_that(in_one_piece) as engine:
            assert await read(engine) == (StreamEnd(), LINES[1:])

    async def test_a_truncated_body_is_no_end_in_good_order(self, engine_that: Any) -> None:
        with engine_that(truncated) as engine:
            end, messages = await read(engine)
        assert end.broken
        assert messages == LINES[:1]

    async def test_a_refusal_keeps_the_engines_words_and_status(self, engine_that: Any) -> None:
        with engine_that(lambda talk: talk.answer({"message": "denied: no"}, 500)) as engine:
            end, messages = await read(engine)
        assert (end.status, end.text, messages) == (500, "denied: no", [])

    async def test_a_tag_is_always_given_and_never_all_of_them(self, engine_that: Any) -> None:
        with engine_that(in_good_order) as engine:
            await read(engine)
            assert "tag=1" in engine.pulls[0]

    async def test_a_fault_of_the_reader_is_not_lost(self, engine_that: Any) -> None:
        request = PullRequest(repository="x" * 3, reference="1", credential={"username": object()})  # type: ignore[dict-item]  # a fault on purpose
        with engine_that(in_good_order) as engine, pytest.raises(TypeError):
            await asyncio.wait_for(PullStream(engine.url, "1.41", request).run(lambda _: None), 20)


@pytest.mark.parametrize("pull", [silent_in_mid_stream, silent_before_the_headers])
class TestAborting:
    async def test_an_abort_is_acknowledged_at_once_while_the_engine_is_silent(
        self, engine_that: Any, pull: Any
    ) -> None:
        with engine_that(pull) as engine:
            reading = asyncio.create_task(read(engine))
            await asyncio.to_thread(engine.silent.acquire)
            begun = time.monotonic()
            reading.cancel()
            await asyncio.wait({reading}, timeout=10)
            assert reading.cancelled()
            assert time.monotonic() - begun < 2

    async def test_fifty_aborts_leave_no_thread_and_no_file_behind(self, engine_that: Any, pull: Any) -> None:
        with engine_that(pull) as engine:
            await _abort_once(engine)  # What is made once and kept is made now.
            files = _open_files()
            for _ in range(50):
                await _abort_once(engine)
            await eventually(lambda: _open_files() <= files + 3, timeout=10)
            await eventually(lambda: "pull" not in {thread.name for thread in threading.enumerate()}, timeout=5)


async def _abort_once(engine: ScriptedEngine) -> None:
    reading = asyncio.create_task(read(engine))
    await asyncio.to_thread(engine.silent.acquire)
    reading.cancel()
    await asyncio.wait({reading}, timeout=10)
    assert reading.cancelled()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
