"""The only API code that speaks Temporal."""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Protocol

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.payloads import data_converter
from towline.domain.agents import Drain
from towline.domain.containers import LogPage, ReadLogs
from towline.domain.progress import PullProgress
from towline.domain.queues import (
    ActivityName,
    AgentSignal,
    Signal,
    agent_workflow_id,
    container_queue,
    session_workflow_id,
)
from towline.domain.sessions import EndRequest, SessionSpec
from towline.errors import UnavailableError
from workflows.starting import start_session

_log = logging.getLogger(__name__)
_RPC_TIMEOUT: Final = timedelta(seconds=3)
_LOGS_TIMEOUT: Final = timedelta(seconds=20)
_STARTS_IN_FLIGHT_MAX: Final = 40
"""More at once only make each of them slower."""


class Orchestrator(Protocol):
    """What the API asks of the workflows. Every call has a deadline."""

    async def start(self, spec: SessionSpec) -> bool:
        """Start a session's workflow. False: Temporal does not answer now."""
        ...

    async def signal(self, spec: SessionSpec, signal: Signal, request: EndRequest) -> None:
        """Ask a session to end. Raises `UnavailableError`."""
        ...

    async def order(self, agent_id: str, drain: Drain | None) -> None:
        """Have an agent drained, or (None) used again; the records say so already. Raises `UnavailableError`."""
        ...

    async def wake(self, session_ids: Iterable[str]) -> None:
        """Tell waiting sessions that there is room. Who is not told asks again by itself."""
        ...

    async def pulls(self, session_id: str) -> dict[str, PullProgress]:
        """The session's pulls by agent id; empty where there are none, or Temporal cannot say."""
        ...

    async def read_logs(self, agent_id: str, request: ReadLogs) -> LogPage:
        """A page of a live log. Raises `UnavailableError` when the agent does not answer."""
        ...

    async def responds(self) -> bool:
        """Whether Temporal answers."""
        ...


async def lazy_client(address: str, namespace: str) -> Client:
    """A client that does not wait for Temporal: its first call does."""
    return await Client.connect(address, namespace=namespace, data_converter=data_converter, lazy=True)


class TemporalOrchestrator:
    """Satisfies `Orchestrator`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._starts = asyncio.Semaphore(_STARTS_IN_FLIGHT_MAX)

    async def start(self, spec: SessionSpec) -> bool:
        """Start a session's workflow; one that was started before is left alone."""
        async with self._starts:
            try:
                await asyncio.wait_for(start_session(self._client, spec), _RPC_TIMEOUT.total_seconds())
            except (RPCError, RuntimeError, TimeoutError) as error:
                _log.warning("session %s is stored and not started yet: %s", spec.session_id, error)
                return False
        return True

    async def signal(self, spec: SessionSpec, signal: Signal, request: EndRequest) -> None:
        """Signal the session's workflow, starting it first where Temporal was away when it was stored."""
        handle = self._client.get_workflow_handle(session_workflow_id(spec.session_id))
        for _ in range(2):
            try:
                await handle.signal(signal, request, rpc_timeout=_RPC_TIMEOUT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise UnavailableError("Temporal does not answer now; nothing was changed") from error
                if not await self.start(spec):
                    raise UnavailableError("Temporal does not answer now; nothing was changed") from error
            except RuntimeError as error:
                raise UnavailableError("Temporal does not answer now; nothing was changed") from error
            else:
                return

    async def order(self, agent_id: str, drain: Drain | None) -> None:
        """Signal the agent's workflow."""
        handle = self._client.get_workflow_handle(agent_workflow_id(agent_id))
        try:
            if drain is None:
                await handle.signal(AgentSignal.UNCORDON, rpc_timeout=_RPC_TIMEOUT)
            else:
                await handle.signal(AgentSignal.DRAIN, drain, rpc_timeout=_RPC_TIMEOUT)
        except (RPCError, RuntimeError) as error:
            message = "recorded, but Temporal does not answer: the sessions there do not know yet; ask again"
            raise UnavailableError(message) from error

    async def wake(self, session_ids: Iterable[str]) -> None:
        """Signal them, one after the other."""
        for session_id in session_ids:
            handle = self._client.get_workflow_handle(session_workflow_id(session_id))
            try:
                await handle.signal(Signal.CAPACITY_FREED, rpc_timeout=_RPC_TIMEOUT)
            except (RPCError, RuntimeError) as error:
                _log.info("could not wake %s: %s", session_id, error)

    async def pulls(self, session_id: str) -> dict[str, PullProgress]:
        """Read the heartbeats of the session's pending pulls."""
        execution = WorkflowExecution(workflow_id=session_workflow_id(session_id))
        request = DescribeWorkflowExecutionRequest(namespace=self._client.namespace, execution=execution)
        try:
            # The handle's `describe` decodes memo and summary as well, for every pull that is watched, twice a second.
            service = self._client.workflow_service
            described = await service.describe_workflow_execution(request, retry=True, timeout=_RPC_TIMEOUT)
        except (RPCError, RuntimeError) as error:
            _log.info("no progress of %s: %s", session_id, error)
            return {}
        found: list[PullProgress] = []
        for pending in described.pending_activities:
            if pending.activity_type.name != ActivityName.CHECK_AND_PULL or not pending.heartbeat_details.payloads:
                continue
            found += await self._client.data_converter.decode(pending.heartbeat_details.payloads, [PullProgress])
        return by_agent(found)

    async def read_logs(self, agent_id: str, request: ReadLogs) -> LogPage:
        """Ask the agent, by an activity of its own."""
        try:
            page: LogPage = await self._client.execute_activity(
                ActivityName.READ_LOGS,
                request,
                id=f"logs/{uuid.uuid4().hex}",
                task_queue=container_queue(agent_id),
                result_type=LogPage,
                schedule_to_close_timeout=_LOGS_TIMEOUT,
            )
        except Exception as error:
            # Whatever the cause, the reader can only be told that the agent has not answered.
            raise UnavailableError(f"the agent {agent_id} does not answer: {error}") from error
        return page

    async def responds(self) -> bool:
        """Ask for the namespace."""
        try:
            return await self._client.service_client.check_health(timeout=_RPC_TIMEOUT)
        except (RPCError, RuntimeError):
            return False


def by_agent(pulls: Iterable[PullProgress]) -> dict[str, PullProgress]:
    """Pulls by the id of their agent."""
    return {pull.agent_id: pull for pull in pulls}
