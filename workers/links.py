"""The ways from an agent to the workflows. A workflow that has ended is not an error; Temporal away is waited out."""

import logging
from collections.abc import Callable
from dataclasses import replace

from temporalio.client import Client, RPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode
from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception, wait_exponential_jitter

from towline.domain.agents import AgentFacts, Claim, EngineDown
from towline.domain.containers import ContainerExit
from towline.domain.pulling import PullStarted, PullVerdict
from towline.domain.queues import AgentSignal, Signal, agent_workflow_id, session_workflow_id
from workflows.session import Session
from workflows.starting import claim_agent

_log = logging.getLogger(__name__)


def _is_temporal_away(error: BaseException) -> bool:
    # The second: nobody has answered an update in time, because no control worker runs yet.
    return (isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND) or isinstance(
        error, RPCTimeoutOrCancelledError
    )


class Links:
    """Satisfies the Protocols `SessionSignals`, `KnownExits` and `AgentSignals` of the activities."""

    def __init__(self, client: Client, agent_id: str, *, on_hello: Callable[[], None] = lambda: None) -> None:
        self.client = client
        self.agent_id = agent_id
        self._on_hello = on_hello

    async def pull_started(self, workflow_id: str, signal: PullStarted) -> None:
        """Tell a session that its pull has begun."""
        await self._signal(workflow_id, Signal.PULL_STARTED, signal)

    async def pull_verdict(self, workflow_id: str, signal: PullVerdict) -> None:
        """Tell a session what is thought of its pull."""
        await self._signal(workflow_id, Signal.PULL_VERDICT, signal)

    async def container_exited(self, session_id: str, exit_: ContainerExit) -> bool:
        """Tell a session how a container ended. True: the session knows it for good, or is over."""
        await self._signal(
            session_workflow_id(session_id), Signal.CONTAINER_EXITED, replace(exit_, agent_id=self.agent_id)
        )
        return True

    async def hello(self, facts: AgentFacts) -> None:
        """Tell the agent's workflow that the agent is here."""
        self._on_hello()
        await self._signal(agent_workflow_id(self.agent_id), AgentSignal.HELLO, facts)

    async def engine_down(self, down: EngineDown) -> None:
        """Tell the agent's workflow that the engine does not answer."""
        await self._signal(agent_workflow_id(self.agent_id), AgentSignal.ENGINE_DOWN, down)

    async def claim(self, claim: Claim) -> None:
        """Become the one worker that serves the agent. Raises `ConflictError` while another one does."""
        async for attempt in self._retrying():
            with attempt:
                await claim_agent(self.client, self.agent_id, claim)

    async def exit_of(self, session_id: str, kernel: int) -> ContainerExit | None:
        """What the session knows of a kernel's exit."""
        handle = self.client.get_workflow_handle_for(Session.run, session_workflow_id(session_id))
        async for attempt in self._retrying():
            with attempt:
                return await handle.query(Session.exit_of, kernel)
        raise AssertionError("tenacity without a stop gives up only by raising")

    async def _signal(self, workflow_id: str, name: str, payload: object) -> None:
        handle = self.client.get_workflow_handle(workflow_id)
        async for attempt in self._retrying():
            with attempt:
                try:
                    await handle.signal(name, payload)
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                    _log.info("%s is over; it does not need %s any more", workflow_id, name)

    def _retrying(self) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception(_is_temporal_away),
            wait=wait_exponential_jitter(multiplier=0.2, max=5),
            before_sleep=before_sleep_log(_log, logging.WARNING),
        )
