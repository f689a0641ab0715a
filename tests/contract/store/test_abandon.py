"""A session whose workflow is gone: ended once, with everything that it held and waited for."""

from datetime import UTC, datetime

from tests.contract.store.conftest import StoreRecorder
from tests.contract.store.specs import GIB, S, end, online, spec
from towline.domain.lifecycle import Reason, Status, Transition
from towline.domain.pulling import PullOutcome, PullReport, PullWait, WaitOutcome
from towline.domain.records import Abandon, Place, Record
from towline.store.fleet import is_our_fleet
from towline.store.pulls import get_pull
from towline.store.sessions import open_session_ids

PULL = PullReport(pull_id="pul-1", agent_id="a1", image="i", started_at=datetime(2026, 1, 1, tzinfo=UTC))
WHY = "its workflow was terminated in Temporal"


async def _pulling(store: StoreRecorder) -> str:
    await store.record_agent(online())
    one = spec(cpu=1, gib=2)
    await store.add(one)
    await store.place(Place(session_id=one.session_id))
    step = Transition(kernel=0, from_status=S.PREPARING, to_status=S.PULLING)
    wait = PullWait(report=PULL, outcome=WaitOutcome.WAITING)
    await store.record(Record(session_id=one.session_id, transitions=(step,), pulls=(wait,)))
    return one.session_id


async def test_it_ends_with_its_reason_holds_nothing_and_waits_for_nothing(store: StoreRecorder) -> None:
    session_id = await _pulling(store)
    waiting = spec(cpu=1, gib=8)
    await store.add(waiting)
    assert not (await store.place(Place(session_id=waiting.session_id))).agents
    finished = await store.abandon(Abandon(session_id=session_id, message=WHY))
    view = await store.view(session_id)
    assert (view.status, view.reason, view.message) == (Status.ERROR, Reason.WORKFLOW_LOST, WHY)
    assert [room.memory_bytes_free for room in await store.rooms()] == [8 * GIB]
    assert finished.woken == (waiting.session_id,)
    async with store.database.transaction() as tx:
        pull = await get_pull(tx, PULL.pull_id, owner_id=None)
        assert await open_session_ids(tx) == {waiting.session_id}
    assert pull is not None
    assert (pull.outcome, [wait.outcome for wait in pull.waits]) == (PullOutcome.ABORTED, [WaitOutcome.LEFT])


async def test_an_end_that_came_first_stays(store: StoreRecorder) -> None:
    session_id = await _pulling(store)
    await store.finish(end(session_id, S.PULLING, S.ERROR))
    before = await store.view(session_id), await store.events(session_id)
    await store.abandon(Abandon(session_id=session_id, message=WHY))
    assert (await store.view(session_id), await store.events(session_id)) == before


async def test_records_belong_to_the_first_fleet_that_is_named(store: StoreRecorder) -> None:
    async with store.database.transaction() as tx:
        assert await is_our_fleet(tx, "one")
    async with store.database.transaction() as tx:
        assert [await is_our_fleet(tx, fleet) for fleet in ("two", "one")] == [False, True]
