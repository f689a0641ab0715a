"""One transfer per key: each class names one promise."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.rig.eventually import eventually
from towline.engine.shared_pulls import SharedPull, SharedPulls, Slot, Waiter

View = tuple[int | None, int]


@dataclass(kw_only=True)
class GatedJob:
    """Runs until its gate opens; says whether it was aborted, and how long its abort takes."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    abort_gate: asyncio.Event = field(default_factory=asyncio.Event)
    running: bool = False
    aborted: bool = False
    failure: Exception | None = None

    async def run(self, slot: Slot, on_change: Callable[[], None]) -> object:
        async with slot():
            return await self._hold(on_change)

    async def _hold(self, on_change: Callable[[], None]) -> object:
        self.running = True
        on_change()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await self.abort_gate.wait()
            self.aborted = True
            raise
        if self.failure is not None:
            raise self.failure
        return "done"


class Pool:
    """Shared pulls with the jobs that they made, in order."""

    def __init__(self, limit: int = 3) -> None:
        self.pulls: SharedPulls[GatedJob, View] = SharedPulls(limit=limit, view=self._view)
        self.jobs: list[GatedJob] = []
        self.seen: list[tuple[str, int | None, int]] = []

    def join(self, key: str, name: str, *, priority: int = 10) -> asyncio.Task[object]:
        def make() -> GatedJob:
            self.jobs.append(GatedJob())
            self.jobs[-1].abort_gate.set()
            return self.jobs[-1]

        def show(view: View) -> None:
            self.seen.append((name, *view))

        return asyncio.create_task(self.pulls.join(key, Waiter(name=name, priority=priority, on_change=show), make))

    def _view(self, pull: SharedPull[GatedJob, View]) -> View:
        return pull.queue_position, len(pull.names)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class TestSharing:
    async def test_many_waiters_make_one_job_and_get_its_result(self) -> None:
        pool = Pool()
        waiters = [pool.join("a", f"w{number}") for number in range(50)]
        await settle()
        assert len(pool.jobs) == 1
        pool.jobs[0].gate.set()
        assert await asyncio.gather(*waiters) == ["done"] * 50
        assert pool.pulls.running() == []

    async def test_a_failure_reaches_all(self) -> None:
        pool = Pool()
        waiters = [pool.join("a", f"w{number}") for number in range(3)]
        await settle()
        pool.jobs[0].failure = ValueError("no")
        pool.jobs[0].gate.set()
        for result in await asyncio.gather(*waiters, return_exceptions=True):
            assert isinstance(result, ValueError)

    async def test_after_the_end_a_new_request_begins_anew(self) -> None:
        pool = Pool()
        for _ in range(2):
            waiter = pool.join("a", "w")
            await settle()
            pool.jobs[-1].gate.set()
            await waiter
        assert len(pool.jobs) == 2

    async def test_one_name_counts_once(self) -> None:
        pool = Pool()
        first, second = pool.join("a", "w"), pool.join("a", "w")
        await settle()
        assert pool.seen[-1][2] == 1
        pool.jobs[0].gate.set()
        await asyncio.gather(first, second)


class TestLeaving:
    async def test_one_that_leaves_harms_no_other(self) -> None:
        pool = Pool()
        stays, leaves = pool.join("a", "stays"), pool.join("a", "leaves")
        await settle()
        leaves.cancel()
        await asyncio.wait({leaves})
        assert not pool.jobs[0].aborted
        pool.jobs[0].gate.set()
        assert await stays == "done"

    async def test_the_last_one_out_aborts_and_is_told_when_that_is_done(self) -> None:
        pool = Pool()
        last = pool.join("a", "last")
        await settle()
        pool.jobs[0].abort_gate.clear()
        last.cancel()
        await settle()
        assert not last.done()
        pool.jobs[0].abort_gate.set()
        with pytest.raises(asyncio.CancelledError):
            await last
        assert pool.jobs[0].aborted

    async def test_who_comes_during_an_abort_waits_for_it_and_begins_anew(self) -> None:
        pool = Pool()
        first = pool.join("a", "first")
        await settle()
        pool.jobs[0].abort_gate.clear()
        first.cancel()
        await settle()
        second = pool.join("a", "second")
        await settle()
        assert len(pool.jobs) == 1
        pool.jobs[0].abort_gate.set()
        await eventually(lambda: len(pool.jobs) == 2 and pool.jobs[1].running, timeout=5)
        pool.jobs[1].gate.set()
        assert await second == "done"
        await asyncio.wait({first})


class TestQueue:
    async def test_the_limit_holds_and_positions_are_shown(self) -> None:
        pool = Pool(limit=1)
        first, second, third = (pool.join(key, key) for key in "abc")
        await settle()
        assert [job.running for job in pool.jobs] == [True, False, False]
        assert {("b", 1, 1), ("c", 2, 1)} <= set(pool.seen)
        for job in pool.jobs:
            job.gate.set()
            await settle()
        await asyncio.gather(first, second, third)

    async def test_a_higher_priority_goes_first(self) -> None:
        pool = Pool(limit=1)
        waiters = [pool.join("a", "a")]
        await settle()
        waiters += [pool.join("low", "low", priority=1), pool.join("high", "high", priority=50)]
        await settle()
        pool.jobs[0].gate.set()
        await settle()
        assert [job.running for job in pool.jobs] == [True, False, True]
        for job in pool.jobs:
            job.gate.set()
        await asyncio.gather(*waiters)

    async def test_a_waiter_lifts_the_pull_that_it_joins(self) -> None:
        pool = Pool(limit=1)
        waiters = [pool.join("a", "a")]
        await settle()
        waiters += [pool.join("b", "b"), pool.join("c", "c"), pool.join("c", "vip", priority=90)]
        await settle()
        assert ("vip", 1, 2) in pool.seen
        for job in pool.jobs:
            job.gate.set()
        await asyncio.gather(*waiters)

    async def test_a_queued_pull_can_be_left(self) -> None:
        pool = Pool(limit=1)
        first, queued, last = pool.join("a", "a"), pool.join("b", "b"), pool.join("c", "c")
        await settle()
        queued.cancel()
        await asyncio.wait({queued})
        assert not pool.jobs[1].running
        pool.jobs[0].gate.set()
        await settle()
        pool.jobs[2].gate.set()
        assert [await first, await last] == ["done", "done"]

    async def test_nobody_starves(self) -> None:
        pool = Pool(limit=1)
        waiters = [pool.join("a", "a")]
        await settle()
        waiters.append(pool.join("poor", "poor", priority=0))
        await settle()
        poor = pool.jobs[-1]
        finished = 0
        while not poor.running and finished < 30:
            waiters.append(pool.join(f"rich{finished}", "rich", priority=90))
            await settle()
            next(job for job in pool.jobs if job.running and not job.gate.is_set()).gate.set()
            finished += 1
            await settle()
        assert poor.running
        for job in pool.jobs:
            job.gate.set()
        await asyncio.gather(*waiters)

    async def test_slots_survive_any_order_of_leaving(self) -> None:
        pool = Pool(limit=2)
        waiters = [pool.join(str(number), str(number)) for number in range(6)]
        await settle()
        for number in (0, 3, 1, 5):
            waiters[number].cancel()
            await asyncio.wait({waiters[number]})
        await settle()
        assert pool.jobs[2].running
        assert pool.jobs[4].running
        for job in pool.jobs:
            job.gate.set()
        assert [await waiters[2], await waiters[4]] == ["done", "done"]

    async def test_a_slot_given_to_one_that_leaves_at_that_moment_is_not_lost(self) -> None:
        pool = Pool(limit=1)
        first, leaves, last = pool.join("a", "a"), pool.join("b", "b"), pool.join("c", "c")
        await settle()
        pool.jobs[0].gate.set()
        leaves.cancel()
        await asyncio.wait({first, leaves})
        await settle()
        assert (pool.jobs[1].running, pool.jobs[2].running) == (False, True)
        pool.jobs[2].gate.set()
        assert await last == "done"
        assert pool.pulls.running() == []


@dataclass(kw_only=True)
class PausingJob:
    """Transfers, pauses until told, and transfers again."""

    pause: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, slot: Slot, on_change: Callable[[], None]) -> object:
        async with slot():
            pass
        await self.pause.wait()
        async with slot():
            return "done"


async def test_a_pull_that_pauses_gives_its_slot_to_others() -> None:
    pulls: SharedPulls[PausingJob, int] = SharedPulls(limit=1, view=lambda pull: len(pull.waiters))
    jobs = {name: PausingJob() for name in "ab"}
    waiter = Waiter[int](name="w", priority=1, on_change=lambda _: None)
    tasks = {name: asyncio.create_task(pulls.join(name, waiter, partial(jobs.__getitem__, name))) for name in "ab"}
    await settle()
    jobs["b"].pause.set()
    assert await asyncio.wait_for(tasks["b"], 5) == "done"
    jobs["a"].pause.set()
    assert await asyncio.wait_for(tasks["a"], 5) == "done"
