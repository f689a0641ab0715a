"""Sessions as stored: what comes back is what was asked, pages have each once, filters filter, nothing waits unseen."""

import asyncio
import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, update
from sqlmodel import col

from tests.contract.store.conftest import StoreRecorder
from tests.contract.store.specs import OWNER, S, end, online, running, spec
from towline.domain.containers import ContainerExit, LogTail
from towline.domain.ids import new_session_id
from towline.domain.lifecycle import Status
from towline.domain.records import Place
from towline.domain.sessions import ClusterMode, Kind, Mount, Network, Port, PullPolicy, Resources, SessionSpec
from towline.errors import ConflictError, InvalidInputError
from towline.store.database import Database
from towline.store.identities import create_user
from towline.store.rows import SessionRow, utc_now
from towline.store.sessions import (
    SessionFilter,
    create_session,
    get_log_tail,
    get_session,
    list_events,
    list_sessions,
    mark_dispatched,
    undispatched,
)

FULL = SessionSpec(
    session_id=new_session_id(),
    owner_id=OWNER,
    owner="ann",
    image="quay.io/a/b:1",
    kind=Kind.INTERACTIVE,
    name="n",
    command=("sh", "-c", ""),
    entrypoint=(),
    working_dir="/w",
    tty=True,
    env={"A": "b=c\n", "E": ""},
    resources=Resources(cpu=0.1, memory_bytes=1 << 62, gpu=2, shm_bytes=1),
    kernels=3,
    cluster_mode=ClusterMode.MULTI_AGENT,
    pull_policy=PullPolicy.ALWAYS,
    allow_stale=True,
    platform="linux/arm64/v8",
    priority=100,
    network=Network.NONE,
    ports=(Port(container_port=80, host_port=8080, protocol="udp"),),
    mounts=(Mount(volume="v", target="/v", read_only=True),),
    time_limit_seconds=0.5,
    pull_deadline_seconds=1e6,
    labels={"k": "v"},
    resource_group="gpu",
    agent_labels={"zone": "x"},
    starts_at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    depends_on=("ses-0123456789abcdef",),
    agent="a1",
)


DEEP = base64.urlsafe_b64encode(b"[" * 100_000).decode()
NOT_CURSORS: list[Any] = [[], {}, 7, None, ["now", "a"], [7, "a"], ["2026-01-01", "a", "b"], [[], 1]]


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


async def create(database: Database, one: SessionSpec, key: str | None = None, body: bytes = b"") -> tuple[str, bool]:
    async with database.transaction() as tx:
        return await create_session(tx, one, idempotency_key=key, body_hash=body)


async def found(database: Database, **fields: Any) -> list[str]:
    async with database.transaction() as tx:
        views, _ = await list_sessions(tx, SessionFilter(**fields), cursor=None, limit=100)
    return [view.spec.session_id for view in views]


class TestCreating:
    async def test_what_comes_back_is_what_was_asked(self, database: Database) -> None:
        assert await create(database, FULL) == (FULL.session_id, True)
        async with database.transaction() as tx:
            view = await get_session(tx, FULL.session_id)
        assert view is not None
        assert view.spec == FULL
        assert (view.status, view.reason, view.dispatched, view.last_event) == (S.PENDING, None, False, 0)
        assert [(kernel.index, kernel.status) for kernel in view.kernels] == [(n, S.PENDING) for n in range(3)]
        assert view.created_at.utcoffset() == timedelta(0)
        assert abs(utc_now() - view.created_at) < timedelta(minutes=1)

    async def test_a_key_makes_one_session_from_one_body_for_one_owner(self, database: Database) -> None:
        async with database.transaction() as tx:
            bob = await create_user(tx, name="bob", role="user")
        first, again, other = spec(), spec(), replace(spec(), owner_id=bob.id, owner="bob")
        assert await create(database, first, "key", b"body") == (first.session_id, True)
        assert await create(database, again, "key", b"body") == (first.session_id, False)
        assert await create(database, other, "key", b"another") == (other.session_id, True)
        with pytest.raises(ConflictError, match=first.session_id):
            await create(database, again, "key", b"another")
        assert sorted(await found(database)) == sorted([first.session_id, other.session_id])

    async def test_without_a_key_each_is_new(self, database: Database) -> None:
        assert [is_new for _, is_new in (await create(database, spec()), await create(database, spec()))] == [True] * 2

    async def test_what_is_not_there_is_none(self, database: Database) -> None:
        async with database.transaction() as tx:
            assert await get_session(tx, "ses-none") is None
            assert await get_log_tail(tx, "ses-none", 0) is None
            assert await list_events(tx, "ses-none", after=0) == []


class TestDispatching:
    async def test_oldest_first_until_it_is_marked(self, database: Database) -> None:
        first, second = spec(), spec()
        for one in (first, second):
            await create(database, one)
        async with database.transaction() as tx:
            assert await undispatched(tx, older_than=timedelta()) == [first, second]
            assert await undispatched(tx, older_than=timedelta(), limit=1) == [first]
            await mark_dispatched(tx, first.session_id)
        async with database.transaction() as tx:
            assert await undispatched(tx, older_than=timedelta()) == [second]
            assert (view := await get_session(tx, first.session_id)) is not None
        assert view.dispatched

    async def test_one_that_is_fresh_is_left_to_the_request_that_has_stored_it(self, database: Database) -> None:
        await create(database, spec())
        async with database.transaction() as tx:
            assert await undispatched(tx, older_than=timedelta(minutes=1)) == []

    async def test_a_workflow_shows_itself_by_its_first_record(self, database: Database) -> None:
        one = spec()
        await create(database, one)
        await StoreRecorder(database).place(Place(session_id=one.session_id))
        async with database.transaction() as tx:
            assert await undispatched(tx, older_than=timedelta()) == []


class TestListing:
    async def test_pages_have_each_session_once_while_others_come(self, database: Database) -> None:
        made = [(await create(database, spec()))[0] for _ in range(5)]
        # Those that were made in the same instant are told apart by their ids.
        same = {"created_at": utc_now()}
        async with database.transaction() as tx:
            await tx.execute(update(SessionRow).where(col(SessionRow.id).in_(made[1:4])).values(same))
        seen: list[str] = []
        cursor: str | None = None
        for number in range(9):
            async with database.transaction() as tx:
                views, cursor = await list_sessions(tx, SessionFilter(), cursor=cursor, limit=2)
            seen += [view.spec.session_id for view in views]
            if cursor is None:
                break
            await create(database, spec(name=f"later-{number}"))
        assert sorted(seen) == sorted(made)

    async def test_filters_each_and_all_at_once(self, store: StoreRecorder, database: Database) -> None:
        await store.record_agent(online(cpu=64, gib=64))
        plain, labelled, imaged = spec(), spec(labels={"team": "a", "x": "1"}), replace(spec(), image="quay.io/a/b:1")
        for one in (plain, labelled, imaged):
            await store.add(one)
        await store.place(Place(session_id=labelled.session_id))
        await store.record(running(labelled.session_id))
        assert await found(database, label=("team", "a")) == [labelled.session_id]
        assert await found(database, label=("team", "b")) == []
        assert await found(database, image="quay.io/a/b:1") == [imaged.session_id]
        assert await found(database, agent="a1") == [labelled.session_id]
        assert await found(database, status=(Status.RUNNING,)) == [labelled.session_id]
        both = (Status.PENDING, Status.RUNNING)
        assert await found(database, status=both) == [imaged.session_id, labelled.session_id, plain.session_id]
        assert await found(database, owner="ann", owner_id=OWNER, agent="a1") == [labelled.session_id]
        assert await found(database, owner="bob") == await found(database, owner_id="usr-bob") == []

    @pytest.mark.parametrize("cursor", ["", "x", "é", "\x00", "\ud800", DEEP, *map(encoded, NOT_CURSORS)])
    async def test_a_cursor_that_is_not_ours_is_refused(self, database: Database, cursor: str) -> None:
        with pytest.raises(InvalidInputError) as refused:
            async with database.transaction() as tx:
                await list_sessions(tx, SessionFilter(), cursor=cursor, limit=5)
        assert [problem.field for problem in refused.value.fields] == ["cursor"]

    @pytest.mark.parametrize("value", [["0001-01-01T00:00:00+14:00", "a"], ["9999-12-31", "\x00"], ["2026-01-01", 7]])
    async def test_one_that_might_be_ours_does_no_harm(self, database: Database, value: list[Any]) -> None:
        async with database.transaction() as tx:
            await list_sessions(tx, SessionFilter(), cursor=encoded(value), limit=5)


class TestLogs:
    async def test_the_tails_are_read_by_nobody_but_who_asks_for_them(
        self, store: StoreRecorder, database: Database
    ) -> None:
        one = spec()
        await store.add(one)
        exits = (ContainerExit(kernel=0, exit_code=0, log=LogTail.of(b"x" * 100, total_bytes=100)),)
        statements: list[str] = []

        def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
            statements.append(statement)

        event.listen(Engine, "before_cursor_execute", note)
        for _ in range(2):
            await store.finish(end(one.session_id, S.PENDING, S.ERROR, exits=exits))
        assert await found(database) == [one.session_id]
        event.remove(Engine, "before_cursor_execute", note)
        assert [statement for statement in statements if "kernels.log_total_bytes" in statement]
        assert not [statement for statement in statements if "kernels.log_tail" in statement]
        assert (await store.log(one.session_id, 0)).data == b"x" * 100


class TestEvents:
    async def test_after_a_number_and_not_more_than_asked_for(self, store: StoreRecorder, database: Database) -> None:
        await store.record_agent(online())
        one = spec()
        await store.add(one)
        await store.place(Place(session_id=one.session_id))
        await store.record(running(one.session_id))
        await store.finish(end(one.session_id, S.RUNNING, S.TERMINATED))
        async with database.transaction() as tx:
            events = await list_events(tx, one.session_id, after=2, limit=2)
        assert [(event.seq, event.to_status) for event in events] == [(3, S.PREPARED), (4, S.CREATING)]
        assert all(event.at.utcoffset() == timedelta(0) for event in events)


async def test_reading_does_not_wait_for_a_writer(store: StoreRecorder, database: Database) -> None:
    one = spec()
    await store.add(one)
    async with database.transaction() as writer:
        await writer.execute(update(SessionRow).values(message="uncommitted"))
        async with asyncio.timeout(5):
            assert (await store.view(one.session_id)).message == ""
