"""What the sessions know of the containers on one agent: which are wanted there, and which should be there and are not."""

import asyncio
import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from towline.domain.queues import running_on, session_id_of, session_workflow_id
from towline.engine.containers import EngineContainers
from towline.engine.orphans import remove_orphans
from towline.errors import EngineError
from workers.connection import fleet_id
from workflows.session import Session

_log = logging.getLogger(__name__)
_RPC_TIMEOUT: Final = timedelta(seconds=5)


class Custody:
    """Asks the sessions' workflows on behalf of one agent.

    A session that runs keeps its kernels where they are for as long as its agent is not lost. So what a session has said is
    remembered until `forget`, which whoever notices that the agent was out of sight has to call.
    """

    def __init__(self, client: Client, agent_id: str, fleet: str) -> None:
        self._client = client
        self._agent_id = agent_id
        self.fleet = fleet
        self._kernels: dict[str, frozenset[int]] = {}
        self._look_now = asyncio.Event()

    def forget(self) -> None:
        """Sessions may have gone elsewhere meanwhile: ask them anew, now."""
        self._kernels.clear()
        self._look_now.set()

    async def sweep_forever(self, containers: EngineContainers, *, every_seconds: float) -> None:
        """Remove what nobody wants, again and again, until cancelled."""
        while True:
            self._look_now.clear()
            try:
                await self.sweep(containers)
            except (EngineError, TemporalError) as error:
                _log.warning("no look for orphans now: %s", error)
            except Exception:
                _log.exception("the look for orphans failed in a way that it should not; tried again later")
            try:
                async with asyncio.timeout(every_seconds):
                    await self._look_now.wait()
            except TimeoutError:
                continue

    async def sweep(self, containers: EngineContainers) -> None:
        """Remove what nobody wants. Where Temporal is not the one that the containers were started for, nothing is."""
        if await fleet_id(self._client) != self.fleet:
            _log.error("Temporal has lost its data or is another one: no container is touched; restart this agent")
            return
        await remove_orphans(containers, self.is_wanted)

    async def is_wanted(self, session_id: str, kernel: int) -> bool:
        """False: the session is over, unknown to this fleet, or has that kernel on another agent. In doubt True."""
        handle = self._client.get_workflow_handle(session_workflow_id(session_id))
        try:
            described = await handle.describe(rpc_timeout=_RPC_TIMEOUT)
            if described.status is not WorkflowExecutionStatus.RUNNING:
                return False
            return kernel in await self._kernels_of(session_id)
        except TemporalError as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                return False
            _log.info("whether %s is still wanted is not known now: %s", session_id, error)
            return True

    async def missing(self, present: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Kernels of running sessions that have their place on this agent, have not ended, and are not among `present`. None
        while Temporal or the control worker does not answer."""
        try:
            return await self._missing(frozenset(present))
        except TemporalError as error:
            _log.info("which containers are missing is not known now: %s", error)
            return set()

    async def _missing(self, present: frozenset[tuple[str, int]]) -> set[tuple[str, int]]:
        running = [session_id_of(found.id) async for found in self._client.list_workflows(running_on(self._agent_id))]
        self._kernels = {known: kernels for known, kernels in self._kernels.items() if known in running}
        found: set[tuple[str, int]] = set()
        for session_id in running:
            absent = {(session_id, kernel) for kernel in await self._kernels_of(session_id)} - present
            found |= {kernel for kernel in absent if not await self._has_ended(*kernel)}
        return found

    async def _kernels_of(self, session_id: str) -> frozenset[int]:
        if session_id not in self._kernels:
            handle = self._client.get_workflow_handle_for(Session.run, session_workflow_id(session_id))
            kernels = frozenset(await handle.query(Session.kernels_on, self._agent_id, rpc_timeout=_RPC_TIMEOUT))
            # A session that is not placed yet, or is about to be placed anew, says none: that is not to be remembered.
            if not kernels:
                return kernels
            self._kernels[session_id] = kernels
        return self._kernels[session_id]

    async def _has_ended(self, session_id: str, kernel: int) -> bool:
        handle = self._client.get_workflow_handle_for(Session.run, session_workflow_id(session_id))
        return await handle.query(Session.exit_of, kernel, rpc_timeout=_RPC_TIMEOUT) is not None
