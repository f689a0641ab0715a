"""Watching pulls: how fresh what a client sees is, how soon a cancel counts, and what many viewers cost."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
from httpx_sse import aconnect_sse

from tests.acceptance.stack import RunningStack
from tests.rig.eventually import eventually, eventually_sync
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, push
from tests.rig.registry import RegistryProcess

_BLOBS = "*/blobs/*"
_SEEDS = itertools.count(71_000)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured value beside the limit that it has to keep."""

    name: str
    value: str
    limit: str

    def row(self) -> tuple[str, ...]:
        """Name, value, limit."""
        return self.name, self.value, self.limit


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _image(registry: RegistryProcess, faults: FaultRegistry, *sizes_mb: float) -> str:
    layers = tuple(Layer.random(mb=size, seed=next(_SEEDS)) for size in sizes_mb)
    pushed = push(registry.host, "bench/pulls", str(next(_SEEDS)), ImageRecipe(layers=layers))
    return pushed.reference.replace(registry.host, faults.host)


async def freshness(stack: RunningStack, registry: RegistryProcess, *, seconds: float = 15.0) -> list[float]:
    """Seconds from each count of the registry's until a client's event stream shows as much."""
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(total_bytes_per_second=8_000_000), path=_BLOBS)
        session = stack.create(_image(registry, faults, 8 * seconds / 2, 8 * seconds / 2), "true")
        served: list[tuple[float, int]] = []
        seen: list[tuple[float, int]] = []

        async def count() -> None:
            while True:
                by_digest = await asyncio.to_thread(lambda: faults.stats().bytes_by_digest())
                served.append((time.monotonic(), sum(by_digest.values())))
                await asyncio.sleep(0.05)

        counting = asyncio.create_task(count())
        path = f"/v1/sessions/{session['id']}/events"
        async with _client(stack) as client, aconnect_sse(client, "GET", path) as source:
            async for event in source.aiter_sse():
                if event.event == "progress" and event.json()["phase"] == "downloading":
                    seen.append((time.monotonic(), event.json()["bytes_done"]))
                elif event.event == "transition" and event.json()["to_status"] == "PREPARED":
                    break
        counting.cancel()
        stack.cancel(session, force=True)
    most = seen[-1][1]
    delays = []
    for at, count_ in served:
        if 0 < count_ <= most:
            delays.append(next(when for when, done in seen if done >= count_) - at)
    return delays


def cancel_to_last_byte(stack: RunningStack, registry: RegistryProcess, *, runs: int = 20) -> list[float]:
    """Seconds from a force-cancel's request to the last byte that the registry served."""
    found = []
    for run in range(runs):
        with FaultRegistry(registry.host) as faults:
            faults.on(Throttle(total_bytes_per_second=10_000_000), path=_BLOBS)
            session = stack.create(_image(registry, faults, 25), "true")
            eventually_sync(lambda limit=run: faults.body_bytes > 300_000 * (limit + 1), timeout=30)
            asked = time.monotonic()
            stack.cancel(session, force=True)
            eventually_sync(lambda: not faults.stats().open, timeout=30)
            last = max(exchange.last_byte_at or asked for exchange in faults.stats().exchanges)
            found.append(max(0.0, last - asked))
    return found


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """What many viewers cost: the API's share of one core, and the events of a pulling session's history before and after."""

    api_core_share: float
    progress_seen: int
    history_before: int
    history_after: int


async def crowd(
    stack: RunningStack, registry: RegistryProcess, *, pulls: int = 100, viewers: int = 5, seconds: float = 20.0
) -> Crowd:
    """So many pulls at once, all of them moving, each watched by so many."""
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(bytes_per_second=15_000), path=_BLOBS)
        sessions = [stack.create(_image(registry, faults, 3.0), "true") for _ in range(pulls)]
        for session in sessions:
            stack.reaches(session, "PULLING", timeout_seconds=120)
        found = await _watched(stack, sessions, viewers, seconds)
        for session in sessions:
            stack.cancel(session, force=True)
        for session in sessions:
            stack.ended(session, timeout_seconds=120)
        return found


async def _watched(stack: RunningStack, sessions: list[dict[str, Any]], viewers: int, seconds: float) -> Crowd:
    seen, watching = 0, set[tuple[str, int]]()

    async def view(client: httpx.AsyncClient, session_id: str, number: int) -> None:
        nonlocal seen
        async with aconnect_sse(client, "GET", f"/v1/sessions/{session_id}/events") as source:
            async for event in source.aiter_sse():
                if event.event == "progress":
                    seen += 1
                    watching.add((session_id, number))

    async with _client(stack) as client:
        views = [asyncio.create_task(view(client, session["id"], n)) for session in sessions for n in range(viewers)]
        # What it costs to open the streams is not measured.
        await eventually(lambda: len(watching) == len(views), timeout=60)
        api = psutil.Process(stack.pid("api"))
        history_before, counted = await _history(stack, sessions[-1]), seen
        cpu, begun = api.cpu_times(), time.monotonic()
        await asyncio.sleep(seconds)
        used, took = api.cpu_times(), time.monotonic() - begun
        found = Crowd(
            api_core_share=(used.user + used.system - cpu.user - cpu.system) / took,
            progress_seen=seen - counted,
            history_before=history_before,
            history_after=await _history(stack, sessions[-1]),
        )
        for task in views:
            task.cancel()
        await asyncio.gather(*views, return_exceptions=True)
    return found


async def _history(stack: RunningStack, session: dict[str, Any]) -> int:
    from temporalio.client import Client

    from towline.domain.queues import session_workflow_id

    client = await Client.connect(stack.temporal)
    described = await client.get_workflow_handle(session_workflow_id(session["id"])).describe()
    return described.history_length


def _client(stack: RunningStack) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=stack.api.base_url, headers=stack.api.headers, timeout=60.0, limits=limits)


def responsiveness(stack: RunningStack, registry: RegistryProcess) -> list[Figure]:
    """Of one pull."""
    fresh = percentile(asyncio.run(freshness(stack, registry)), 0.95)
    cancels = percentile(cancel_to_last_byte(stack, registry), 0.95)
    return [
        Figure(name="bytes served until seen on an event stream, p95", value=f"{fresh:.2f} s", limit="1 s"),
        Figure(name="force-cancel until the last byte served, p95", value=f"{cancels:.2f} s", limit="1 s"),
    ]


def crowding(stack: RunningStack, registry: RegistryProcess) -> list[Figure]:
    """Of 100 pulls with 5 viewers each; the stack's agent and engine have to take so many at once."""
    many = asyncio.run(crowd(stack, registry))
    grown = many.history_after - many.history_before
    return [
        Figure(
            name="100 pulls x 5 viewers: the API, of one core", value=f"{100 * many.api_core_share:.0f} %", limit="25 %"
        ),
        Figure(name="100 pulls x 5 viewers: progress events in 20 s", value=str(many.progress_seen), limit=""),
        Figure(name="100 pulls x 5 viewers: growth of a history, events", value=str(grown), limit="0"),
    ]
