"""Event streams over real connections: one reader for all viewers, nothing lost, nothing left behind by who goes away."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import httpx
import pytest
import uvicorn
from httpx_sse import aconnect_sse

from tests.api.conftest import Served
from tests.api.test_pulls import BEGUN, a_pull, is_pulling, waits
from tests.rig.eventually import eventually
from towline.domain.lifecycle import Reason, Status, Transition
from towline.domain.progress import PullPhase, PullProgress
from towline.domain.pulling import PullOutcome, PullReport, WaitOutcome
from towline.domain.records import Finish
from towline.store.records import StoreRecords


@dataclass(frozen=True, kw_only=True)
class Live:
    """The application behind a real socket, and a pulling session of the user's."""

    served: Served
    port: int
    session: dict[str, Any]
    report: PullReport

    def bytes_are(self, done: int) -> None:
        """The pull is so far."""
        progress = PullProgress(
            pull_id=self.report.pull_id,
            image="busybox:latest",
            agent_id="a1",
            phase=PullPhase.DOWNLOADING,
            bytes_done=done,
            started_at=BEGUN,
            updated_at=BEGUN,
        )
        self.served.workflows.progress[self.session["id"]] = {"a1": progress}

    @asynccontextmanager
    async def stream(self, path: str, who: httpx.AsyncClient, **headers: str) -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a stream, as they come."""
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=who.headers, timeout=20)
        async with client, aconnect_sse(client, "GET", path, headers=headers) as source:
            events = source.aiter_sse()
            yield ((event.event, json.loads(event.data)) async for event in events if event.data)


@pytest.fixture
async def live(served: Served) -> AsyncIterator[Live]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(served.app, lifespan="off", log_level="error"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await eventually(lambda: server.started, timeout=10)
        session, report = await served.create(), a_pull()
        await is_pulling(served, session)
        await waits(served, session, report, WaitOutcome.WAITING)
        yield Live(served=served, port=listener.getsockname()[1], session=session, report=report)
        server.should_exit = True
        await serving


async def _until(events: AsyncIterator[Any], kind: str, done: int) -> dict[str, Any]:
    async with asyncio.timeout(10):
        async for found, data in events:
            progress = data.get("progress", data) if found == kind else None
            if progress is not None and progress["bytes_done"] == done:
                return dict(data)
    raise AssertionError("the stream has ended")


async def test_all_pulls_are_followed_from_the_first_look_to_the_end(live: Live) -> None:
    live.bytes_are(5)
    async with live.stream("/v1/pulls", live.served.user, accept="text/event-stream") as events:
        kind, first = await anext(events)
        assert kind == "pulls"
        assert [one["progress"]["bytes_done"] for one in first["pulls"] if one["id"] == live.report.pull_id] == [5]
        live.bytes_are(7)
        assert (await _until(events, "progress", 7))["id"] == live.report.pull_id
        ended = replace(live.report, outcome=PullOutcome.SUCCEEDED, bytes_pulled=9, ended_at=BEGUN)
        await waits(live.served, live.session, ended, WaitOutcome.SUCCEEDED)
        async with asyncio.timeout(10):
            accounts = [data async for kind, data in _until_ended(events)]
        assert (accounts[-1]["outcome"], accounts[-1]["bytes_pulled"]) == ("succeeded", 9)


async def _until_ended(events: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for kind, data in events:
        yield kind, data
        if kind == "ended":
            return


async def test_a_user_follows_only_what_is_theirs_to_see(live: Live) -> None:
    theirs, foreign = await live.served.create(live.served.admin), a_pull()
    await waits(live.served, theirs, foreign, WaitOutcome.WAITING)
    for who, sees in ((live.served.user, False), (live.served.admin, True)):
        async with live.stream("/v1/pulls", who, accept="text/event-stream") as events:
            _, first = await anext(events)
            assert (foreign.pull_id in [one["id"] for one in first["pulls"]]) is sees


async def test_any_number_of_viewers_costs_one_reader(live: Live) -> None:
    live.bytes_are(0)
    path = f"/v1/sessions/{live.session['id']}/events"
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(live.stream(path, live.served.user, accept="text/event-stream"))
            for path in [path] * 20 + ["/v1/pulls"] * 20
        ]
        before = live.served.workflows.progress_reads
        for done in (1, 2, 3):
            live.bytes_are(done)
            await asyncio.gather(*(_until(events, "progress", done) for events in streams))
        # Two pollers, and three changes that each is seen by within a tick or two.
        assert live.served.workflows.progress_reads - before <= 20


@pytest.mark.parametrize("path", ["/v1/sessions/{id}/events", "/v1/pulls"])
async def test_a_reader_that_stumbles_goes_on(live: Live, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stumbled = asyncio.Event()

    async def stumble(session_id: str) -> NoReturn:
        stumbled.set()
        raise ValueError(session_id)

    live.bytes_are(1)
    where = path.format(id=live.session["id"])
    async with live.stream(where, live.served.user, accept="text/event-stream") as events:
        await anext(events)
        with monkeypatch.context() as patched:
            patched.setattr(live.served.workflows, "pulls", stumble)
            await asyncio.wait_for(stumbled.wait(), 10)
        live.bytes_are(7)
        await _until(events, "progress", 7)


async def test_who_goes_away_without_a_word_leaves_nothing(live: Live) -> None:
    live.bytes_are(0)
    tasks = _tasks()
    for path in (f"/v1/sessions/{live.session['id']}/events", "/v1/pulls"):
        for _ in range(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
            token = live.served.user.headers["authorization"]
            request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nAccept: text/event-stream\r\n\r\n"
            writer.write(request.encode())
            assert b"200" in await reader.readline()
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # A RST, and no FIN.
            writer.transport.abort()
    await eventually(lambda: _tasks() <= tasks, timeout=20)
    reads = live.served.workflows.progress_reads
    await eventually(lambda: live.served.workflows.progress_reads == reads, timeout=5)


def _tasks() -> int:
    """The tasks of the loop, but for the one that sse-starlette keeps for all streams of a process."""
    found = (task.get_coro() for task in asyncio.all_tasks())
    return sum(getattr(running, "__name__", "") != "_shutdown_watcher" for running in found)


async def test_taken_up_after_a_number_nothing_is_lost_and_nothing_comes_twice(live: Live) -> None:
    path = f"/v1/sessions/{live.session['id']}/events"
    whole = (await live.served.user.get(path)).json()["events"]
    numbers: list[int] = []
    for _ in whole:
        last = str(numbers[-1] if numbers else 0)
        async with live.stream(
            path, live.served.user, **{"accept": "text/event-stream", "last-event-id": last}
        ) as events:
            async with asyncio.timeout(10):
                numbers.append((await anext(events))[1]["seq"])
    assert numbers == [event["seq"] for event in whole]


async def test_a_stream_ends_with_its_session(live: Live) -> None:
    path = f"/v1/sessions/{live.session['id']}/events"
    async with live.stream(path, live.served.user, accept="text/event-stream") as events:
        await anext(events)
        await _end(live)
        async with asyncio.timeout(10):
            kinds = [kind async for kind, _ in events]
    assert kinds[-1] == "transition"


async def _end(live: Live) -> None:
    step = Transition(kernel=0, from_status=Status.PULLING, to_status=Status.CANCELLED, reason=Reason.CANCELLED_BY_USER)
    finish = Finish(session_id=live.session["id"], transitions=(step,), reason=Reason.CANCELLED_BY_USER)
    await StoreRecords(live.served.database).finish(finish)
