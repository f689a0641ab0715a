"""Live logs of a real engine in pages: the same bytes for every reader, wherever they begin and however slow they are."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.contract.container_subjects import Images, RealSubject, push_images, real_subject
from tests.rig.engines import Engine
from tests.rig.registry import RegistryProcess
from towline.domain.containers import LogTail, ReadLogs
from towline.domain.sessions import SessionSpec

_LINES = 100_000
_LOG = b"".join(b"number %06d of a log with many lines\n" % number for number in range(_LINES))


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


def _writes(count: int) -> str:
    line = "number %06d of a log with many lines\\n"
    return f"awk 'BEGIN {{ for (i = 0; i < {count}; i++) printf \"{line}\", i }}'"


async def _read(subject: RealSubject, spec: SessionSpec, offset: int, *, until: int) -> bytes:
    data = b""
    while offset + len(data) < until:
        request = ReadLogs(session_id=spec.session_id, kernel=0, offset=offset + len(data), limit_bytes=300_000)
        page = await subject.containers.read_logs(request)
        assert page.next_offset >= request.offset
        data += LogTail(packed=page.packed).data()
    return data


async def test_ten_thousand_lines_of_a_terminal_are_whole(subject: RealSubject) -> None:
    async def check() -> None:
        spec = subject.spec("sh", "-c", _writes(10_000), tty=True)
        await subject.start(spec)
        lines = (await subject.log(spec)).split(b"\r\n")
        assert lines == [*_LOG.split(b"\n")[:10_000], b""]

    # Several, because an old engine loses the last lines of a followed log only now and then.
    await asyncio.gather(*(check() for _ in range(4)))


async def test_stdout_and_stderr_both_come(subject: RealSubject) -> None:
    spec = subject.spec("sh", "-c", "echo out; echo err >&2")
    await subject.start(spec)
    assert sorted((await subject.log(spec)).splitlines()) == [b"err", b"out"]


async def test_readers_at_different_places_each_get_what_they_ask_for(classic: RealSubject) -> None:
    spec = classic.spec("sh", "-c", f"{_writes(_LINES)}; sleep 60")
    await classic.start(spec)
    size = len(_LOG)
    begins = (0, size - 2_000_000, size // 2, size - 10)
    parts = await asyncio.gather(*(_read(classic, spec, begin, until=size) for begin in begins))
    for begin, part in zip(begins, parts, strict=True):
        assert part == _LOG[begin:]


async def test_who_went_away_and_comes_back_goes_on_where_they_were(classic: RealSubject) -> None:
    spec = classic.spec("sh", "-c", f"{_writes(_LINES)}; sleep 60")
    await classic.start(spec)
    first = await _read(classic, spec, 0, until=100_000)
    rest = await _read(classic, spec, len(first), until=len(_LOG))
    again = await _read(classic, spec, len(first), until=len(first) + 100_000)
    assert first + rest == _LOG
    assert rest.startswith(again)


async def test_the_tail_of_a_log_without_end_says_that_there_was_more(classic: RealSubject) -> None:
    spec = classic.spec("sh", "-c", _writes(_LINES))
    started = await classic.start(spec)
    await asyncio.to_thread(classic.client.wait, started.container_id)
    log = (await classic.end(spec)).log
    assert log.truncated
    assert log.data() == _LOG[-(1 << 20) :]
