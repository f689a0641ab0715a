"""An empty database for each test, and the records twice: the store's and their fake."""

from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from sqlalchemy import text

from tests.contract.store.specs import OWNER
from tests.fakes.records import MemoryRecords
from towline.domain.agents import AgentRecorded, RecordAgent
from towline.domain.placement import AgentRoom
from towline.domain.quotas import Quota, Subject
from towline.domain.records import Admission, Admit, Finish, Freed, Place, Placement, Record
from towline.domain.sessions import SessionSpec
from towline.store.database import Database
from towline.store.ledger import rooms
from towline.store.quotas import set_quota
from towline.store.records import StoreRecords
from towline.store.rows import UserRow
from towline.store.sessions import create_session, get_log_tail, get_session, list_events, mark_dispatched
from towline.store.views import EventView, LogTailView, SessionView


class Recorder(Protocol):
    """The records, and what a test looks at."""

    async def place(self, request: Place) -> Placement: ...

    async def admit(self, request: Admit) -> Admission: ...

    async def set_quota(self, user_id: str, quota: Quota) -> None: ...

    async def record(self, request: Record) -> Freed: ...

    async def finish(self, request: Finish) -> Freed: ...

    async def record_agent(self, request: RecordAgent) -> AgentRecorded: ...

    async def add(self, spec: SessionSpec) -> None: ...

    async def view(self, session_id: str) -> SessionView: ...

    async def events(self, session_id: str) -> list[EventView]: ...

    async def log(self, session_id: str, kernel: int) -> LogTailView: ...

    async def rooms(self) -> list[AgentRoom]: ...


async def added(recorder: Recorder, *specs: SessionSpec) -> list[str]:
    """Store the sessions; their ids."""
    for one in specs:
        await recorder.add(one)
    return [one.session_id for one in specs]


class FakeRecorder:
    """The fake, asked in the same way."""

    def __init__(self) -> None:
        self._memory = MemoryRecords()
        self.place = self._memory.place
        self.admit = self._memory.admit
        self.record = self._memory.record
        self.finish = self._memory.finish
        self.record_agent = self._memory.record_agent

    async def add(self, spec: SessionSpec) -> None:
        self._memory.add(spec)

    async def set_quota(self, user_id: str, quota: Quota) -> None:
        self._memory.set_quota(user_id, quota)

    async def view(self, session_id: str) -> SessionView:
        return self._memory.view(session_id)

    async def events(self, session_id: str) -> list[EventView]:
        return self._memory.events(session_id)

    async def log(self, session_id: str, kernel: int) -> LogTailView:
        return self._memory.log(session_id, kernel)

    async def rooms(self) -> list[AgentRoom]:
        return self._memory.rooms()


class StoreRecorder(StoreRecords):
    """The store's records, read through its repositories."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database

    async def add(self, spec: SessionSpec) -> None:
        async with self.database.transaction() as tx:
            await create_session(tx, spec, idempotency_key=None, body_hash=b"")
            await mark_dispatched(tx, spec.session_id)

    async def set_quota(self, user_id: str, quota: Quota) -> None:
        assert user_id == OWNER
        async with self.database.transaction() as tx:
            await set_quota(tx, Subject(kind="user", name="ann"), quota)

    async def view(self, session_id: str) -> SessionView:
        async with self.database.transaction() as tx:
            view = await get_session(tx, session_id)
        assert view is not None
        return view

    async def events(self, session_id: str) -> list[EventView]:
        async with self.database.transaction() as tx:
            return await list_events(tx, session_id, after=0)

    async def log(self, session_id: str, kernel: int) -> LogTailView:
        async with self.database.transaction() as tx:
            tail = await get_log_tail(tx, session_id, kernel)
        assert tail is not None
        return tail

    async def rooms(self) -> list[AgentRoom]:
        async with self.database.transaction() as tx:
            return await rooms(tx)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    """Nothing but one user in it."""
    database = Database.open(postgres_url)
    async with database.transaction() as tx:
        await tx.execute(text("TRUNCATE users, quotas, agents, pulls, fleet CASCADE"))
        tx.add(UserRow(id=OWNER, name="ann", role="user"))
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> StoreRecorder:
    """The store's records."""
    return StoreRecorder(database)


@pytest.fixture(params=["fake", "store"])
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """The fake, then the store."""
    if request.param == "fake":
        return FakeRecorder()
    found: StoreRecorder = request.getfixturevalue("store")
    return found
