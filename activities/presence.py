"""An agent's presence: one long activity that proves that the agent lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from temporalio import activity

from activities.failures import typed
from towline.domain.queues import ActivityName
from towline.domain.records import AgentFacts
from towline.errors import EngineError

_log = logging.getLogger(__name__)
_BEAT_SECONDS: Final = 2.0


class AgentSignals(Protocol):
    """The way from an agent to its own workflow."""

    async def hello(self, facts: AgentFacts) -> None:
        """Say that the agent is here, and what it is."""
        ...


class PresenceActivities:
    """The presence of one agent."""

    def __init__(
        self, *, facts: Callable[[], Awaitable[AgentFacts]], signals: AgentSignals, beat_seconds: float = _BEAT_SECONDS
    ) -> None:
        self._facts = facts
        self._signals = signals
        self._beat_seconds = beat_seconds

    @activity.defn(name=ActivityName.ATTEND)
    @typed
    async def attend(self) -> None:
        """Say hello, then heartbeat until the worker stops or the workflow has had enough.

        While the engine is away there is nothing to say hello with: the agent waits for it here, instead of failing and being
        started again many times a second.
        """
        while (facts := await self._facts_now()) is None:
            activity.heartbeat()
            await asyncio.sleep(self._beat_seconds)
        await self._signals.hello(facts)
        while True:
            activity.heartbeat()
            await asyncio.sleep(self._beat_seconds)

    async def _facts_now(self) -> AgentFacts | None:
        try:
            return await self._facts()
        except EngineError as error:
            _log.warning("not attending yet: %s", error.message)
            return None
