"""Records and workflows compared, on a real Temporal and a real Postgres: only what nobody looks after is ended."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from sqlalchemy import text
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from tests.contract.store.specs import OWNER, online, spec
from tests.rig.eventually import eventually
from towline.domain.lifecycle import Reason, Status
from towline.domain.queues import OPEN_SESSIONS, session_workflow_id
from towline.domain.records import Place
from towline.domain.sessions import SessionSpec
from towline.store.database import Database
from towline.store.fleet import is_our_fleet
from towline.store.records import StoreRecords
from towline.store.rows import UserRow
from towline.store.sessions import create_session, get_session, mark_dispatched
from workers.reconciliation import Reconciliation
from workflows.starting import start_session


@dataclass(kw_only=True)
class Office:
    """Records, and workflows that nobody carries out: only whether they are open counts here."""

    client: Client
    database: Database

    def __post_init__(self) -> None:
        self.records = StoreRecords(self.database)
        self.reconciliation = Reconciliation(self.client, self.database, self.records)

    async def placed(self, *, workflow: bool = True) -> SessionSpec:
        one = spec()
        async with self.database.transaction() as tx:
            await create_session(tx, one, idempotency_key=None, body_hash=b"")
            await mark_dispatched(tx, one.session_id)
        assert (await self.records.place(Place(session_id=one.session_id))).agents
        if workflow:
            await start_session(self.client, one)
        return one

    async def terminate(self, one: SessionSpec) -> None:
        workflow_id = session_workflow_id(one.session_id)
        await self.client.get_workflow_handle(workflow_id).terminate()

        async def is_listed_no_more() -> None:
            assert workflow_id not in {found.id async for found in self.client.list_workflows(OPEN_SESSIONS)}

        await eventually(is_listed_no_more, timeout=10)

    async def state(self, one: SessionSpec) -> tuple[Status, Reason | None]:
        async with self.database.transaction() as tx:
            view = await get_session(tx, one.session_id)
        assert view is not None
        return view.status, view.reason


@pytest.fixture
async def office(dev_env: WorkflowEnvironment, postgres_url: str) -> AsyncIterator[Office]:
    database = Database.open(postgres_url)
    async with database.transaction() as tx:
        await tx.execute(text("TRUNCATE users, agents, fleet CASCADE"))
        tx.add(UserRow(id=OWNER, name="ann", role="user"))
    office = Office(client=dev_env.client, database=database)
    await office.records.record_agent(online())
    yield office
    async for left in office.client.list_workflows(OPEN_SESSIONS):
        await office.client.get_workflow_handle(left.id).terminate()
    await database.close()


async def test_only_what_has_no_open_workflow_is_ended(office: Office) -> None:
    open_, terminated, deleted = await office.placed(), await office.placed(), await office.placed(workflow=False)
    await office.terminate(terminated)
    await office.reconciliation.look()
    assert await office.state(open_) == (Status.PREPARING, None)
    for one in (terminated, deleted):
        assert await office.state(one) == (Status.ERROR, Reason.WORKFLOW_LOST)


async def test_records_of_another_fleet_are_left_alone(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    """Temporal has lost its data, or is another one: all sessions would look as if their workflows were gone."""
    async with office.database.transaction() as tx:
        assert await is_our_fleet(tx, "another")
    one = await office.placed(workflow=False)
    await office.reconciliation.look()
    assert await office.state(one) == (Status.PREPARING, None)
    assert "of another fleet" in caplog.text
