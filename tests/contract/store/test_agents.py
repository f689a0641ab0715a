"""Agents as recorded: what they say, how they are, who is on them, and what has happened to them."""

from tests.contract.store.conftest import Recorder, StoreRecorder
from tests.contract.store.specs import S, end, online, spec
from towline.domain.agents import AgentEvent, AgentStatus, RecordAgent
from towline.domain.lifecycle import Reason
from towline.domain.records import Place
from towline.store.agents import close_agent, get_agent, open_agent
from towline.store.views import AgentView


def away(status: AgentStatus, message: str = "") -> RecordAgent:
    return RecordAgent(facts=online().facts, status=status, message=message)


async def shown(store: StoreRecorder) -> AgentView:
    async with store.database.transaction() as tx:
        view = await get_agent(tx, "a1")
    assert view is not None
    return view


async def test_only_one_that_is_online_is_given_work(recorder: Recorder) -> None:
    one = spec()
    await recorder.add(one)
    for status in (AgentStatus.ENGINE_DOWN, AgentStatus.LOST):
        await recorder.record_agent(online())
        await recorder.record_agent(away(status))
        answer = await recorder.place(Place(session_id=one.session_id))
        assert (answer.agents, answer.reason) == ((), Reason.NO_CAPACITY)
    assert (await recorder.record_agent(online())).woken == (one.session_id,)
    assert (await recorder.place(Place(session_id=one.session_id))).agents == ("a1",)


async def test_who_is_on_it_is_answered_until_they_hold_nothing(recorder: Recorder) -> None:
    await recorder.record_agent(online())
    one = spec(kernels=2)
    await recorder.add(one)
    assert (await recorder.record_agent(online())).sessions == ()
    await recorder.place(Place(session_id=one.session_id))
    assert (await recorder.record_agent(away(AgentStatus.LOST))).sessions == (one.session_id,)
    await recorder.record_agent(online("a2"))
    assert (await recorder.record_agent(online("a2"))).sessions == ()
    await recorder.finish(end(one.session_id, S.PREPARING, S.ERROR, kernels=2))
    assert (await recorder.record_agent(online())).sessions == ()


async def test_changes_are_kept_and_repetitions_are_not(store: StoreRecorder) -> None:
    for request in (online(), online(), away(AgentStatus.ENGINE_DOWN, "no answer"), away(AgentStatus.LOST), online()):
        await store.record_agent(request)
    events = [event.kind for event in reversed((await shown(store)).events)]
    assert events == [AgentEvent.ONLINE, AgentEvent.ENGINE_DOWN, AgentEvent.LOST, AgentEvent.ONLINE]


async def test_why_it_is_away_is_shown_until_it_is_back(store: StoreRecorder) -> None:
    await store.record_agent(online(resource_group="gpu", gpu=2))
    await store.record_agent(away(AgentStatus.ENGINE_DOWN, "no answer"))
    view = await shown(store)
    assert (view.status, view.message) == (AgentStatus.ENGINE_DOWN, "no answer")
    assert (view.resource_group, view.gpu, view.gpu_free) == ("gpu", 2, 2)
    await store.record_agent(online())
    assert ((await shown(store)).status, (await shown(store)).message) == (AgentStatus.ONLINE, "")


async def test_one_that_is_closed_is_given_no_work_until_it_is_opened(store: StoreRecorder) -> None:
    one = spec()
    await store.add(one)
    await store.record_agent(online())
    async with store.database.transaction() as tx:
        assert await close_agent(tx, "a1", actor="root", why="", drain=True, until=None)
        assert not await close_agent(tx, "a2", actor="root", why="", drain=False, until=None)
    assert (await store.place(Place(session_id=one.session_id))).reason is Reason.NO_CAPACITY
    assert (await store.record_agent(online())).woken == ()
    async with store.database.transaction() as tx:
        assert await open_agent(tx, "a1", actor="root", why="")
    assert (await store.record_agent(online())).woken == (one.session_id,)
