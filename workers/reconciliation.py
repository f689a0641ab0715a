"""Ends the records of sessions whose workflow ended past Towline: terminated or deleted by hand, or failed."""

import logging
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from towline.domain.queues import OPEN_SESSIONS, Signal, session_id_of, session_workflow_id
from towline.domain.records import Abandon
from towline.store.database import Database
from towline.store.fleet import is_our_fleet
from towline.store.records import StoreRecords
from towline.store.sessions import open_session_ids
from workers.connection import fleet_id

_log = logging.getLogger(__name__)
_RPC_TIMEOUT: Final = timedelta(seconds=5)


class Reconciliation:
    """Compares the records with Temporal. A session that a workflow looks after is left alone, whatever its status."""

    def __init__(self, client: Client, database: Database, records: StoreRecords) -> None:
        self._client = client
        self._database = database
        self._records = records

    async def look(self) -> None:
        """End every session that nobody will end any more."""
        fleet = await fleet_id(self._client)
        # The records first: a workflow writes its session's end before it is over.
        async with self._database.transaction() as tx:
            if not await is_our_fleet(tx, fleet):
                _log.error(
                    "the records are of another fleet than Temporal's workflows: no session is ended for want of one"
                )
                return
            recorded = await open_session_ids(tx)
        found = {session_id_of(one.id) async for one in self._client.list_workflows(OPEN_SESSIONS)}
        for session_id in sorted(recorded - found):
            message = await self._how_it_ended(session_id)
            if message is not None:
                await self._end(session_id, message)

    async def _how_it_ended(self, session_id: str) -> str | None:
        """A sentence, or None where the workflow is open after all: the list lags behind."""
        handle = self._client.get_workflow_handle(session_workflow_id(session_id))
        try:
            described = await handle.describe(rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return "its workflow does not exist in Temporal any more"
        if described.status is WorkflowExecutionStatus.RUNNING:
            return None
        how = "ended" if described.status is None else described.status.name.lower().replace("_", " ")
        return f"its workflow {described.id} was {how} in Temporal; its history there says by whom"

    async def _end(self, session_id: str, message: str) -> None:
        _log.error("%s: %s", session_id, message)
        finished = await self._records.abandon(Abandon(session_id=session_id, message=message))
        for woken in finished.woken:
            try:
                await self._client.get_workflow_handle(session_workflow_id(woken)).signal(Signal.CAPACITY_FREED)
            except RPCError as error:
                _log.info("could not wake %s: %s", woken, error)
