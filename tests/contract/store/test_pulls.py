"""The account of pulls: how each ended, who waited, and that messages may come late, twice and in any order."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.contract.store.conftest import StoreRecorder
from tests.contract.store.specs import OWNER, spec
from towline.domain.pulling import PullOutcome, PullReport, PullWait, WaitOutcome
from towline.domain.records import Record
from towline.store.identities import create_user
from towline.store.pulls import get_pull, list_pulls
from towline.store.views import PullView

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = PullReport(pull_id="pull-1", agent_id="a1", image="busybox:latest", started_at=BEGUN)
SUCCEEDED = replace(
    RUNNING,
    outcome=PullOutcome.SUCCEEDED,
    digest="sha256:d",
    bytes_pulled=70,
    bytes_present=30,
    retried_bytes=5,
    attempts=2,
    ended_at=BEGUN + timedelta(seconds=3),
)
W = WaitOutcome


async def sessions(store: StoreRecorder, count: int) -> list[str]:
    specs = [spec() for _ in range(count)]
    for one in specs:
        await store.add(one)
    return [one.session_id for one in specs]


async def wait(store: StoreRecorder, session_id: str, outcome: W, *reports: PullReport) -> None:
    waits = tuple(PullWait(report=report, outcome=outcome) for report in reports or (RUNNING,))
    await store.record(Record(session_id=session_id, pulls=waits))


async def pull(store: StoreRecorder, *, owner_id: str | None = None) -> PullView | None:
    async with store.database.transaction() as tx:
        return await get_pull(tx, "pull-1", owner_id=owner_id)


async def outcome_of(store: StoreRecorder) -> PullOutcome:
    view = await pull(store)
    assert view is not None
    assert (view.ended_at is None) is (view.outcome is PullOutcome.RUNNING)
    return view.outcome


async def test_it_runs_until_its_end_is_told_and_keeps_its_account(store: StoreRecorder) -> None:
    [one] = await sessions(store, 1)
    await wait(store, one, W.WAITING)
    assert await outcome_of(store) is PullOutcome.RUNNING
    await wait(store, one, W.SUCCEEDED, SUCCEEDED)
    view = await pull(store)
    assert view is not None
    assert (view.outcome, view.digest, view.attempts) == (PullOutcome.SUCCEEDED, "sha256:d", 2)
    assert (view.bytes_pulled, view.bytes_present, view.retried_bytes) == (70, 30, 5)
    assert (view.started_at, view.ended_at) == (SUCCEEDED.started_at, SUCCEEDED.ended_at)
    [waited] = view.waits
    assert (waited.session_id, waited.outcome, waited.left_at is None) == (one, W.SUCCEEDED, False)


async def test_the_last_one_out_makes_it_aborted(store: StoreRecorder) -> None:
    first, last = await sessions(store, 2)
    for session_id in (first, last):
        await wait(store, session_id, W.WAITING)
    await wait(store, first, W.LEFT)
    assert await outcome_of(store) is PullOutcome.RUNNING
    await wait(store, last, W.LEFT)
    assert await outcome_of(store) is PullOutcome.ABORTED


MESSAGES: Sequence[tuple[int, W, PullReport]] = (
    (0, W.WAITING, RUNNING),
    (0, W.LEFT, RUNNING),
    (1, W.WAITING, RUNNING),
    (1, W.SUCCEEDED, SUCCEEDED),
)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_in_whatever_order_two_sessions_tell_it_ends_the_same(
    store: StoreRecorder, order: tuple[int, ...]
) -> None:
    told = await sessions(store, 2)
    for message in (*order, order[0]):
        who, outcome, report = MESSAGES[message]
        await wait(store, told[who], outcome, report)
    view = await pull(store)
    assert view is not None
    assert (view.outcome, view.bytes_pulled) == (PullOutcome.SUCCEEDED, 70)
    assert {one.session_id: one.outcome for one in view.waits} == {told[0]: W.LEFT, told[1]: W.SUCCEEDED}


async def test_one_who_joined_before_the_last_left_and_says_so_late_keeps_it_running(store: StoreRecorder) -> None:
    first, second = await sessions(store, 2)
    await wait(store, first, W.WAITING)
    await wait(store, first, W.LEFT)
    await wait(store, second, W.WAITING)
    assert await outcome_of(store) is PullOutcome.RUNNING


async def test_many_that_wait_for_the_same_pulls_do_not_lock_each_other_out(store: StoreRecorder) -> None:
    other = replace(RUNNING, pull_id="pull-2", agent_id="a2")
    ids = await sessions(store, 16)
    for outcome in (W.WAITING, W.LEFT):
        orders = itertools.cycle([(RUNNING, other), (other, RUNNING)])
        await asyncio.gather(*(wait(store, one, outcome, *reports) for one, reports in zip(ids, orders, strict=False)))
    assert await outcome_of(store) is PullOutcome.ABORTED


async def test_a_user_sees_pulls_that_own_sessions_waited_for_and_how_many_others_did(store: StoreRecorder) -> None:
    async with store.database.transaction() as tx:
        bob, eve = [await create_user(tx, name=name, role="user") for name in ("bob", "eve")]
    [mine], his = await sessions(store, 1), replace(spec(), owner_id=bob.id, owner="bob")
    await store.add(his)
    for session_id in (mine, his.session_id):
        await wait(store, session_id, W.WAITING)
    for owner_id, session_id in ((OWNER, mine), (bob.id, his.session_id)):
        assert (seen := await pull(store, owner_id=owner_id)) is not None
        assert ([one.session_id for one in seen.waits], seen.other_waiters) == ([session_id], 1)
    assert await pull(store, owner_id=eve.id) is None


async def test_lists_newest_first_by_outcome(store: StoreRecorder) -> None:
    [one] = await sessions(store, 1)
    reports = [replace(RUNNING, pull_id=f"pull-{n}", started_at=BEGUN + timedelta(hours=n)) for n in range(3)]
    await wait(store, one, W.WAITING, *reports)
    await wait(store, one, W.SUCCEEDED, replace(reports[1], outcome=PullOutcome.SUCCEEDED, ended_at=BEGUN))
    async with store.database.transaction() as tx:
        everything = await list_pulls(tx, owner_id=None, outcome=None, limit=10)
        running = await list_pulls(tx, owner_id=OWNER, outcome=PullOutcome.RUNNING, limit=1)
    assert [one.id for one in everything] == ["pull-2", "pull-1", "pull-0"]
    assert [one.id for one in running] == ["pull-2"]
