"""An agent's presence: one long activity that proves that the agent lives."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from temporalio import activity

from activities.failures import typed
from towline.domain.queues import ActivityName
from towline.domain.records import AgentFacts

_BEAT_SECONDS: Final = 2.0


class AgentSignals(Protocol):
    """The way from an agent to its own workflow."""

    async def hello(self, facts: AgentFacts) -> None:
        """Say that the agent is here, and what it is."""
        ...


class PresenceActivities:
    """The presence of one agent."""

    def __init__(self, *, facts: Callable[[], Awaitable[AgentFacts]], signals: AgentSignals) -> None:
        self._facts = facts
        self._signals = signals

    @activity.defn(name=ActivityName.ATTEND)
    @typed
    async def attend(self) -> None:
        """Say hello, then heartbeat until the worker stops or the workflow has had enough."""
        await self._signals.hello(await self._facts())
        while True:
            activity.heartbeat()
            await asyncio.sleep(_BEAT_SECONDS)
