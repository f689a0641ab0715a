"""A large session that has waited for long: small ones do not take its room for ever, and get what it does not need."""

from sqlalchemy import update
from sqlmodel import col

from tests.contract.store.conftest import StoreRecorder, added
from tests.contract.store.specs import S, end, online, spec
from towline.domain.lifecycle import Reason
from towline.domain.records import Place
from towline.store.ledger import KEPT_AFTER
from towline.store.rows import SessionRow


async def grow_old(store: StoreRecorder, session_id: str) -> None:
    async with store.database.transaction() as tx:
        aged = update(SessionRow).where(col(SessionRow.id) == session_id)
        await tx.execute(aged.values(created_at=SessionRow.created_at - 2 * KEPT_AFTER))


async def place(store: StoreRecorder, session_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    answer = await store.place(Place(session_id=session_id))
    return answer.agents, answer.woken


async def test_small_ones_overtake_it_until_it_is_overdue_and_then_have_the_rest(store: StoreRecorder) -> None:
    await store.record_agent(online(gib=8))
    holder, large, *small = await added(store, spec(gib=5), spec(gib=6), *(spec(gib=1) for _ in range(4)))
    assert await place(store, holder) == (("a1",), ())
    assert await place(store, large) == ((), ())
    assert await place(store, small[0]) == (("a1",), ())
    await grow_old(store, large)
    for waiting in small[1:]:
        answer = await store.place(Place(session_id=waiting))
        assert (answer.agents, answer.reason) == ((), Reason.NO_CAPACITY)
        assert "what is free goes to 1 session that came before" in answer.message
    assert (await store.finish(end(small[0], S.PREPARING, S.CANCELLED))).woken == ()
    assert (await store.finish(end(holder, S.PREPARING, S.CANCELLED))).woken == (large, *small[1:3])
    # The small ones were not woken for what was kept while the large one did not fit: now they are, also if it is asked again.
    assert await place(store, large) == (("a1",), tuple(small[1:3]))
    assert await place(store, large) == (("a1",), tuple(small[1:3]))
    assert await place(store, small[1]) == (("a1",), ())


async def test_when_it_gives_up_what_was_kept_for_it_is_free(store: StoreRecorder) -> None:
    await store.record_agent(online(gib=8))
    holder, large, small = await added(store, spec(gib=5), spec(gib=6), spec(gib=1))
    await place(store, holder)
    await place(store, large)
    await grow_old(store, large)
    assert await place(store, small) == ((), ())
    assert (await store.finish(end(large, S.PENDING, S.CANCELLED))).woken == (small,)
