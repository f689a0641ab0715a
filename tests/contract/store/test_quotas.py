"""Quotas: what is over one waits in PREPARED, in turn, and goes on when there is room; never is more admitted than may be."""

import asyncio

import pytest

from tests.contract.store.conftest import Recorder, StoreRecorder
from tests.contract.store.specs import GIB, OWNER, S, end, online, spec, steps
from towline.domain.lifecycle import Reason
from towline.domain.quotas import Quota, Subject
from towline.domain.records import Admission, Admit, Place, Record
from towline.domain.sessions import SessionSpec
from towline.errors import NotFoundError
from towline.store.identities import create_user
from towline.store.quotas import list_quotas, open_book, remove_quota, set_quota


async def prepared(recorder: Recorder, one: SessionSpec) -> Admission:
    """Placed, its image brought, and admission asked for."""
    await recorder.record_agent(online(cpu=100, gib=100))
    await recorder.add(one)
    assert (await recorder.place(Place(session_id=one.session_id))).agents
    return await admit(recorder, one)


async def admit(recorder: Recorder, one: SessionSpec) -> Admission:
    brought = [step for kernel in range(one.kernels) for step in steps(S.PREPARING, S.PREPARED, kernel=kernel)]
    return await recorder.admit(Admit(record=Record(session_id=one.session_id, transitions=tuple(brought))))


async def status(recorder: Recorder, one: SessionSpec) -> tuple[S, Reason | None]:
    view = await recorder.view(one.session_id)
    return view.status, view.reason


class TestOneUser:
    async def test_who_falls_back_from_creating_wakes_who_waits_for_the_quota(self, recorder: Recorder) -> None:
        await recorder.set_quota(OWNER, Quota(sessions=1))
        first, second = spec(), spec()
        assert (await prepared(recorder, first)).admitted
        assert not (await prepared(recorder, second)).admitted
        back = Record(session_id=first.session_id, transitions=steps(S.CREATING, S.PREPARING))
        assert (await recorder.record(back)).woken == (second.session_id,)
        assert (await admit(recorder, second)).admitted

    async def test_who_is_woken_in_vain_wakes_those_whom_the_rest_fits(self, recorder: Recorder) -> None:
        await recorder.set_quota(OWNER, Quota(cpu=4.0))
        first, large, small, urgent = spec(cpu=4), spec(cpu=4), spec(), spec(cpu=3, priority=50)
        assert [(await prepared(recorder, one)).admitted for one in (first, large, small)] == [True, False, False]
        freed = await recorder.finish(end(first.session_id, S.CREATING, S.CANCELLED))
        assert freed.woken == (large.session_id,)
        assert (await prepared(recorder, urgent)).admitted
        answer = await recorder.admit(Admit(record=Record(session_id=large.session_id), woken=True))
        assert (answer.admitted, answer.woken) == (False, (small.session_id,))

    async def test_without_a_quota_goes_on(self, recorder: Recorder) -> None:
        one = spec(kernels=2)
        assert (await prepared(recorder, one)).admitted
        assert await status(recorder, one) == (S.CREATING, None)
        assert (await admit(recorder, one)).admitted, "asked again, it answers the same"

    async def test_over_it_waits_visibly_and_is_woken_by_an_end(self, recorder: Recorder) -> None:
        await recorder.set_quota(OWNER, Quota(cpu=2))
        first, second = spec(cpu=1.5), spec(cpu=1)
        assert (await prepared(recorder, first)).admitted
        refused = await prepared(recorder, second)
        assert not refused.admitted
        assert refused.message
        assert await status(recorder, second) == (S.PREPARED, Reason.QUOTA)
        finished = await recorder.finish(end(first.session_id, S.CREATING, S.CANCELLED))
        assert finished.woken == (second.session_id,)
        assert (await admit(recorder, second)).admitted
        assert await status(recorder, second) == (S.CREATING, None)

    async def test_what_is_not_created_yet_costs_nothing(self, recorder: Recorder) -> None:
        await recorder.set_quota(OWNER, Quota(sessions=1))
        pulling, other = spec(), spec()
        await recorder.record_agent(online())
        await recorder.add(pulling)
        await recorder.place(Place(session_id=pulling.session_id))
        await recorder.record(Record(session_id=pulling.session_id, transitions=steps(S.PREPARING, S.PULLING)))
        assert (await prepared(recorder, other)).admitted

    async def test_the_turn_is_by_priority_then_age(self, recorder: Recorder) -> None:
        await recorder.set_quota(OWNER, Quota(sessions=1))
        running, older, urgent = spec(), spec(), spec(priority=50)
        assert [(await prepared(recorder, one)).admitted for one in (running, older, urgent)] == [True, False, False]
        assert (await recorder.finish(end(running.session_id, S.CREATING, S.CANCELLED))).woken == (urgent.session_id,)
        assert not (await admit(recorder, older)).admitted, "what is free is the other's"
        assert (await admit(recorder, urgent)).admitted

    async def test_what_does_not_fit_keeps_nobody_waiting(self, recorder: Recorder) -> None:
        await recorder.set_quota(OWNER, Quota(memory_bytes=4 * GIB))
        running, large, small = spec(gib=2), spec(gib=3, priority=90), spec(gib=2)
        assert [(await prepared(recorder, one)).admitted for one in (running, large, small)] == [True, False, True]

    async def test_all_kernels_count_together(self, recorder: Recorder) -> None:
        await recorder.set_quota(OWNER, Quota(cpu=3))
        pair, another = spec(cpu=1, kernels=2), spec(cpu=1, kernels=2)
        assert [(await prepared(recorder, one)).admitted for one in (pair, another)] == [True, False]


async def _set(store: StoreRecorder, kind: str, name: str, quota: Quota) -> None:
    async with store.database.transaction() as tx:
        await set_quota(tx, Subject(kind=kind, name=name), quota)


async def _bob(store: StoreRecorder, project: str | None = None) -> str:
    async with store.database.transaction() as tx:
        return (await create_user(tx, name="bob", role="user", project=project)).id


async def test_of_many_at_once_no_more_are_admitted_than_may_be(store: StoreRecorder) -> None:
    await _set(store, "user", "ann", Quota(sessions=3))
    await store.record_agent(online(cpu=100, gib=100))
    specs = [spec() for _ in range(12)]
    answers = await asyncio.gather(*(prepared(store, one) for one in specs))
    assert sum(answer.admitted for answer in answers) == 3
    assert "sessions of user ann: 4, and 3 is the limit" in {answer.message.partition(": ")[2] for answer in answers}


async def test_a_users_own_quota_goes_before_that_of_everybody(store: StoreRecorder) -> None:
    await _set(store, "user", "*", Quota(sessions=1))
    await _set(store, "user", "ann", Quota(cpu=8))
    assert [(await prepared(store, spec())).admitted for _ in range(2)] == [True, True]
    bob = await _bob(store)
    async with store.database.transaction() as tx:
        assert [account.quota for account in (await open_book(tx, [bob])).of(bob)] == [Quota(sessions=1)]
        await remove_quota(tx, Subject(kind="user", name="*"))
        assert (await open_book(tx, [bob])).of(bob) == []


async def test_a_project_counts_its_users_together(store: StoreRecorder) -> None:
    bob, eve = await _bob(store, "vision"), "usr-eve"
    await _set(store, "project", "vision", Quota(sessions=1))
    async with store.database.transaction() as tx:
        eve = (await create_user(tx, name="eve", role="user", project="vision")).id
    of_bob, of_eve, of_ann = spec(owner_id=bob), spec(owner_id=eve), spec()
    assert [(await prepared(store, one)).admitted for one in (of_bob, of_eve, of_ann)] == [True, False, True]
    assert (await store.finish(end(of_bob.session_id, S.CREATING, S.CANCELLED))).woken == (of_eve.session_id,)
    assert (await admit(store, of_eve)).admitted


async def test_they_are_listed_with_what_is_used(store: StoreRecorder) -> None:
    await _set(store, "user", "ann", Quota(cpu=2))
    await _set(store, "user", "*", Quota(sessions=5))
    await _set(store, "project", "nobody", Quota(gpu=0))
    assert (await prepared(store, spec(cpu=1.5))).admitted
    waiting = spec(cpu=1)
    assert not (await prepared(store, waiting)).admitted
    async with store.database.transaction() as tx:
        found = {str(account.subject): account for account in await list_quotas(tx)}
    assert set(found) == {"user ann", "user *", "project nobody"}
    assert (found["user ann"].used.cpu, found["user ann"].pending) == (1.5, 1)


async def test_of_a_user_that_is_not_there_says_so(store: StoreRecorder) -> None:
    with pytest.raises(NotFoundError):
        await _set(store, "user", "zed", Quota())
