"""An agent's presence: one long activity that proves that the agent lives, and tells how its engine is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.failures import typed
from towline.domain.agents import AgentFacts, Attend, EngineDown
from towline.domain.queues import ActivityName
from towline.errors import EngineError

_log = logging.getLogger(__name__)
_BEAT_SECONDS: Final = 2.0
_PROBE_SECONDS: Final = 5.0
_FAILURES: Final = 2
"""A single question that an engine did not answer says little of a busy one."""


class AgentSignals(Protocol):
    """The way from an agent to its own workflow."""

    async def hello(self, facts: AgentFacts) -> None:
        """Say that the agent is here, and what it is."""
        ...

    async def engine_down(self, down: EngineDown) -> None:
        """Say that the engine does not answer."""
        ...


class PresenceActivities:
    """The presence of one life of an agent, its `boot_id`. `facts` asks the engine each time. `on_superseded` is called when
    another worker has claimed the agent."""

    def __init__(
        self,
        *,
        boot_id: str,
        facts: Callable[[], Awaitable[AgentFacts]],
        signals: AgentSignals,
        on_superseded: Callable[[], None] = lambda: None,
        beat_seconds: float = _BEAT_SECONDS,
        probe_seconds: float = _PROBE_SECONDS,
    ) -> None:
        self._boot_id = boot_id
        self._facts = facts
        self._signals = signals
        self._on_superseded = on_superseded
        self._beat_seconds = beat_seconds
        self._probe_seconds = probe_seconds

    @activity.defn(name=ActivityName.ATTEND)
    @typed
    async def attend(self, request: Attend) -> None:
        """Heartbeat until the worker stops, which is said at once, or the workflow has had enough; meanwhile watch the engine."""
        if request.boot_id != self._boot_id:
            self._on_superseded()
            raise ApplicationError("another worker has claimed this agent", non_retryable=True)
        watching = asyncio.create_task(self._watch_engine())
        stopping = asyncio.create_task(activity.wait_for_worker_shutdown())
        try:
            while not watching.done() and not stopping.done():
                activity.heartbeat()
                await asyncio.wait(
                    {watching, stopping}, timeout=self._beat_seconds, return_when=asyncio.FIRST_COMPLETED
                )
            if watching.done():
                await watching
        finally:
            watching.cancel()
            stopping.cancel()
            await asyncio.gather(watching, stopping, return_exceptions=True)

    async def _watch_engine(self) -> None:
        """Say hello when the engine answers, or answers something new; say so when it does not answer any more."""
        said: AgentFacts | None = None
        failures, is_down = 0, False
        while True:
            try:
                facts = await self._facts()
            except EngineError as error:
                failures += 1
                if failures >= _FAILURES and not is_down:
                    _log.warning("the engine is down: %s", error.message)
                    await self._signals.engine_down(EngineDown(boot_id=self._boot_id, message=error.message))
                    said, is_down = None, True
            else:
                failures, is_down = 0, False
                if facts != said:
                    await self._signals.hello(facts)
                    said = facts
            await asyncio.sleep(self._beat_seconds if failures else self._probe_seconds)
