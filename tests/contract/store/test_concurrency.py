"""Many at once on a real Postgres: nothing is promised twice, nothing is freed twice, nobody is forgotten."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlmodel import col

from tests.contract.store.conftest import StoreRecorder
from tests.contract.store.specs import GIB, S, end, online, running, spec
from tests.rig.eventually import eventually
from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import FINAL, Reason
from towline.domain.records import Note, Place, Record
from towline.domain.sessions import ClusterMode, SessionSpec
from towline.errors import ConflictError
from towline.store.agents import list_agents
from towline.store.database import Database
from towline.store.ledger import lock_placement
from towline.store.rows import LedgerRow, SessionRow, utc_now
from towline.store.sessions import create_session


async def sessions(store: StoreRecorder, count: int, **fields: Any) -> list[SessionSpec]:
    """Stored one after the other, so that each is older than the next."""
    specs = [spec(**fields) for _ in range(count)]
    for one in specs:
        await store.add(one)
    return specs


async def free_gib(store: StoreRecorder) -> dict[str, int]:
    return {room.agent_id: room.memory_bytes_free // GIB for room in await store.rooms()}


class TestPlacing:
    @pytest.mark.parametrize("mode", ClusterMode)
    async def test_thirty_at_once_fill_the_agents_and_not_more(self, store: StoreRecorder, mode: ClusterMode) -> None:
        for agent_id, gib in (("a1", 5), ("a2", 7)):
            await store.record_agent(online(agent_id, cpu=64, gib=gib))
        specs = await sessions(store, 30, cpu=0.1, gib=1, cluster_mode=mode)
        # Each is asked for twice, as after an answer that was lost.
        asked = [Place(session_id=one.session_id) for one in specs] * 2
        answers = await asyncio.gather(*(store.place(request) for request in asked))
        placed = {request.session_id: answer.agents for request, answer in zip(asked, answers, strict=True)}
        assert sum(1 for agents in placed.values() if agents) == 12
        assert Counter(name for agents in placed.values() for name in agents) == {"a1": 5, "a2": 7}
        assert await free_gib(store) == {"a1": 0, "a2": 0}

    async def test_all_kernels_of_many_kernels_or_none(self, store: StoreRecorder) -> None:
        for agent_id in ("a1", "a2", "a3"):
            await store.record_agent(online(agent_id, cpu=64, gib=5))
        specs = await sessions(store, 12, kernels=4, gib=1, cluster_mode=ClusterMode.MULTI_AGENT)
        answers = await asyncio.gather(*(store.place(Place(session_id=one.session_id)) for one in specs))
        assert Counter(len(answer.agents) for answer in answers) == {4: 3, 0: 9}
        assert sum((await free_gib(store)).values()) == 3

    async def test_a_fleet_that_is_too_small_serves_everybody_by_being_woken_alone(self, store: StoreRecorder) -> None:
        for agent_id in ("a1", "a2"):
            await store.record_agent(online(agent_id, cpu=64, gib=4))
        large, small = await sessions(store, 12, gib=3), await sessions(store, 28, gib=1)
        wakes = {one.session_id: asyncio.Event() for one in large + small}

        async def live(one: SessionSpec) -> None:
            while not (await store.place(Place(session_id=one.session_id))).agents:
                await wakes[one.session_id].wait()
                wakes[one.session_id].clear()
            assert min((await free_gib(store)).values()) >= 0
            finished = await store.finish(end(one.session_id, S.PREPARING, S.TERMINATING))
            assert finished.woken == ()
            finished = await store.finish(end(one.session_id, S.TERMINATING, S.TERMINATED))
            for session_id in finished.woken:
                wakes[session_id].set()

        # Nobody asks again by the clock: one wake-up too few, and this does not end.
        async with asyncio.timeout(60):
            await asyncio.gather(*(live(one) for one in large + small))
        assert await free_gib(store) == {"a1": 4, "a2": 4}

    async def test_a_placement_in_flight_that_did_not_see_the_freed_room_is_woken(
        self, store: StoreRecorder, database: Database
    ) -> None:
        await store.record_agent(online(gib=8))
        holder, waiting = await sessions(store, 2, gib=8)
        await store.place(Place(session_id=holder.session_id))

        async def has_ended() -> None:
            assert (await store.view(holder.session_id)).status is S.CANCELLED

        async with database.transaction() as placement:
            await lock_placement(placement)
            finishing = asyncio.create_task(store.finish(end(holder.session_id, S.PREPARING, S.CANCELLED)))
            await eventually(has_ended, timeout=10)
            told = {"reason": Reason.NO_CAPACITY}
            await placement.execute(update(SessionRow).where(col(SessionRow.id) == waiting.session_id).values(told))
            assert not finishing.done()
        assert (await finishing).woken == (waiting.session_id,)

    async def test_those_that_wait_to_be_placed_keep_no_connection_from_others(
        self, store: StoreRecorder, database: Database, postgres_url: str
    ) -> None:
        await store.record_agent(online(cpu=64, gib=64))
        specs = await sessions(store, 10)
        small = StoreRecorder(Database.open(postgres_url, pool_size=1))
        async with database.transaction() as placement:
            await lock_placement(placement)
            placing = [asyncio.create_task(small.place(Place(session_id=one.session_id))) for one in specs]
            async with asyncio.timeout(10):
                note = Note(key="verdict-1", kind="verdict", message="m")
                for one in specs:
                    await small.record(Record(session_id=one.session_id, notes=(note,)))
        assert all(placement.agents for placement in await asyncio.gather(*placing))
        await small.database.close()

    async def test_one_that_has_stopped_asking_loses_its_turn_and_not_its_place(
        self, store: StoreRecorder, database: Database
    ) -> None:
        await store.record_agent(online(gib=8))
        holder, hanging, asking = await sessions(store, 3, gib=8)
        for one in (holder, hanging, asking):
            await store.place(Place(session_id=one.session_id))
        await store.finish(end(holder.session_id, S.PREPARING, S.CANCELLED))
        assert not (await store.place(Place(session_id=asking.session_id))).agents
        long_ago = {"updated_at": utc_now() - timedelta(minutes=6)}
        async with database.transaction() as tx:
            await tx.execute(update(SessionRow).where(col(SessionRow.id) == hanging.session_id).values(long_ago))
        assert (await store.place(Place(session_id=asking.session_id))).agents == ("a1",)
        assert (await store.finish(end(asking.session_id, S.PREPARING, S.CANCELLED))).woken == (hanging.session_id,)

    async def test_racing_its_own_end_leaves_nothing_held(self, store: StoreRecorder) -> None:
        await store.record_agent(online(cpu=64, gib=64))
        specs = await sessions(store, 20)
        places = [store.place(Place(session_id=one.session_id)) for one in specs]
        ends = [store.finish(end(one.session_id, S.PENDING, S.CANCELLED)) for one in specs]
        await asyncio.gather(*places, *ends)
        assert {(await store.view(one.session_id)).status for one in specs} == {S.CANCELLED}
        assert await free_gib(store) == {"a1": 64}

    async def test_an_agent_that_says_hello_many_times_at_once_is_one(
        self, store: StoreRecorder, database: Database
    ) -> None:
        await asyncio.gather(*(store.record_agent(online(gib=gib)) for gib in range(1, 21)))
        async with database.transaction() as tx:
            assert len(await list_agents(tx)) == 1


class TestFinishing:
    async def test_of_racing_ends_one_wins_and_what_was_held_is_freed_once(
        self, store: StoreRecorder, database: Database
    ) -> None:
        await store.record_agent(online())
        [one] = await sessions(store, 1, kernels=2)
        await store.place(Place(session_id=one.session_id))
        await store.record(running(one.session_id, kernels=2))
        ends = {
            S.ERROR: [Reason.CONTAINER_LOST, Reason.INTERNAL],
            S.TERMINATED: [Reason.EXITED, Reason.OOM_KILLED, Reason.TIME_LIMIT],
        }
        exits = (ContainerExit(kernel=0, exit_code=1), ContainerExit(kernel=1, exit_code=2))
        finishes = [
            end(one.session_id, S.RUNNING, to, kernels=2, reason=reason, exits=exits)
            for to, reasons in ends.items()
            for reason in reasons
        ]
        await asyncio.gather(*(store.finish(finish) for finish in finishes * 4))
        view = await store.view(one.session_id)
        assert view.reason in ends[view.status]
        events = [event for event in await store.events(one.session_id) if event.to_status in FINAL]
        assert [(event.kernel, event.to_status, event.reason) for event in events] == [
            (kernel, view.status, view.reason) for kernel in range(2)
        ]
        async with database.transaction() as tx:
            freed = (await tx.execute(select(LedgerRow))).scalars().all()
        assert [row.freed_at is not None for row in freed] == [True, True]


class TestRecording:
    async def test_events_of_many_writers_are_numbered_without_gaps(self, store: StoreRecorder) -> None:
        [one] = await sessions(store, 1)
        notes = [Note(key=f"verdict-{number}", kind="verdict", message="m") for number in range(15)]
        records = [Record(session_id=one.session_id, notes=(note,)) for note in notes]
        await asyncio.gather(*(store.record(record) for record in records * 2))
        events = await store.events(one.session_id)
        assert [event.seq for event in events] == list(range(1, 16))
        assert (await store.view(one.session_id)).last_event == 15


class TestCreating:
    async def test_twenty_with_one_key_make_one_session(self, database: Database) -> None:
        async def create() -> tuple[str, bool]:
            async with database.transaction() as tx:
                return await create_session(tx, spec(), idempotency_key="key", body_hash=b"same")

        made = await asyncio.gather(*(create() for _ in range(20)))
        assert len({session_id for session_id, _ in made}) == 1
        assert Counter(is_new for _, is_new in made) == {True: 1, False: 19}
        async with database.transaction() as tx:
            assert (await tx.execute(select(func.count(col(SessionRow.id))))).scalar() == 1

    async def test_of_two_bodies_with_one_key_one_is_refused(self, database: Database) -> None:
        async def create(body_hash: bytes) -> str:
            async with database.transaction() as tx:
                session_id, _ = await create_session(tx, spec(), idempotency_key="key", body_hash=body_hash)
                return session_id

        made = await asyncio.gather(*(create(body) for body in (b"one", b"two") * 5), return_exceptions=True)
        assert len({answer for answer in made if isinstance(answer, str)}) == 1
        assert Counter(type(answer) for answer in made) == {str: 5, ConflictError: 5}

    async def test_a_key_whose_first_use_came_to_nothing_can_be_used(self, database: Database) -> None:
        first, second = asyncio.Event(), spec()

        async def give_up() -> None:
            async with database.transaction() as tx:
                await create_session(tx, spec(), idempotency_key="key", body_hash=b"same")
                first.set()
                raise LookupError

        async def create() -> tuple[str, bool]:
            await first.wait()
            async with database.transaction() as tx:
                return await create_session(tx, second, idempotency_key="key", body_hash=b"same")

        _, made = await asyncio.gather(give_up(), create(), return_exceptions=True)
        assert made == (second.session_id, True)
