"""The pool through restarts and cancellation, being told of events, and text that Postgres would not keep."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.contract.store.conftest import StoreRecorder
from tests.contract.store.specs import S, end, online, spec
from tests.rig.eventually import eventually
from towline.domain.lifecycle import Reason
from towline.domain.records import Note, Place, Record
from towline.embedded.postgres import running_postgres
from towline.store.bootstrap import ensure_first_token
from towline.store.database import Database
from towline.store.identities import list_users
from towline.store.migrate import upgrade
from towline.store.notify import listen
from towline.store.sessions import SessionFilter, list_sessions


class Listener:
    """Whom `listen` has told of what."""

    def __init__(self, url: str) -> None:
        self.heard: list[str | None] = []
        self._task = asyncio.create_task(self._run(url))

    async def _run(self, url: str) -> None:
        async for session_id in listen(url):
            self.heard.append(session_id)

    async def hears(self, *expected: str | None) -> None:
        await eventually(lambda: self.heard == list(expected), timeout=30)

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def test_a_restart_of_postgres_costs_nobody_an_error_once_it_is_back(tmp_path: Path) -> None:
    with running_postgres(tmp_path, durable=False) as url:
        await asyncio.to_thread(upgrade, url)
        assert await asyncio.to_thread(ensure_first_token, url)
        database, listener = Database.open(url), Listener(url)
        # Several connections are in the pool when the server goes.
        await asyncio.gather(*(database.responds() for _ in range(5)))
        await listener.hears(None)
    with running_postgres(tmp_path, durable=False):
        for _ in range(6):
            async with database.transaction() as tx:
                assert [user.name for user in await list_users(tx)] == ["admin"]
        await listener.hears(None, None)
        async with database.transaction() as tx:
            await tx.execute(text("SELECT pg_notify('towline_events', 'ses-1')"))
        await listener.hears(None, None, "ses-1")
        await listener.close()
        await database.close()


class TestTransactions:
    async def test_what_raises_leaves_nothing(self, database: Database) -> None:
        async def rename_and_fail() -> None:
            async with database.transaction() as tx:
                await tx.execute(text("UPDATE users SET name = 'bob'"))
                raise LookupError

        with pytest.raises(LookupError):
            await rename_and_fail()
        async with database.transaction() as tx:
            assert [user.name for user in await list_users(tx)] == ["ann"]

    async def test_cancelled_ones_give_their_connections_back(self, postgres_url: str) -> None:
        database = Database.open(postgres_url, pool_size=1)

        async def hang() -> None:
            async with database.transaction() as tx:
                started.set()
                await tx.execute(text("SELECT pg_sleep(60)"))

        for _ in range(4):
            started = asyncio.Event()
            hanging = asyncio.create_task(hang())
            await started.wait()
            hanging.cancel()
            with suppress(asyncio.CancelledError):
                await hanging
        async with asyncio.timeout(5):
            assert await database.responds()
        await database.close()

    async def test_are_guarded_against_what_hangs_and_see_what_was_committed(self, database: Database) -> None:
        shown = {
            "statement_timeout": "15s",
            "idle_in_transaction_session_timeout": "30s",
            "transaction_isolation": "read committed",
            "TimeZone": "UTC",
            "application_name": "towline",
        }
        async with database.transaction() as tx:
            for name, value in shown.items():
                assert (await tx.execute(text(f"SHOW {name}"))).scalar() == value


class TestBeingTold:
    async def test_of_what_was_committed_and_of_nothing_else(self, store: StoreRecorder, postgres_url: str) -> None:
        listener = Listener(postgres_url)
        await listener.hears(None)
        one, other = spec(), spec()
        for each in (one, other):
            await store.add(each)
        await store.record_agent(online())
        await store.place(Place(session_id=one.session_id))
        with pytest.raises(ValueError, match="no transition"):
            await store.record(
                Record(session_id=other.session_id, transitions=end("", S.PENDING, S.RUNNING).transitions)
            )
        await store.finish(end(one.session_id, S.PREPARING, S.CANCELLED))
        await listener.hears(None, one.session_id, one.session_id)
        await listener.close()


class TestText:
    HOSTILE = "a\x00b\ud83dc\udc00d"
    KEPT = "a\ufffdb\ufffdc\ufffdd"

    async def test_what_an_engine_says_is_written_whatever_it_says(self, store: StoreRecorder) -> None:
        one = spec()
        await store.add(one)
        await store.record_agent(online(labels={"l\x00": self.HOSTILE}, engine_version=self.HOSTILE))
        note = Note(key="k\x00", kind="verdict", message=self.HOSTILE)
        await store.record(Record(session_id=one.session_id, notes=(note, note)))
        finish = end(one.session_id, S.PENDING, S.ERROR, reason=Reason.ENGINE_ERROR, message=self.HOSTILE)
        await store.finish(finish)
        [said, _] = await store.events(one.session_id)
        assert (said.message, (await store.view(one.session_id)).message) == (self.KEPT, self.KEPT)

    async def test_what_is_asked_for_in_such_text_is_not_found(self, database: Database) -> None:
        hostile = self.HOSTILE
        for which in (
            SessionFilter(owner_id=hostile),
            SessionFilter(owner=hostile),
            SessionFilter(image=hostile),
            SessionFilter(agent=hostile),
            SessionFilter(label=(hostile, hostile)),
        ):
            async with database.transaction() as tx:
                assert await list_sessions(tx, which, cursor=None, limit=5) == ([], None)

    async def test_other_text_is_kept_as_it_is(self, store: StoreRecorder) -> None:
        plain = "é漢🙂\n\t\x01 \\u0000 ' \" %s"
        one = spec(env={"A": plain}, labels={"l": plain})
        await store.add(one)
        assert (await store.view(one.session_id)).spec == one
