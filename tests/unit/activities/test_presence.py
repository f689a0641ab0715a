"""An agent attends once its engine answers, and not before."""

import asyncio

from temporalio.testing import ActivityEnvironment

from activities.presence import PresenceActivities
from tests.rig.eventually import eventually
from towline.domain.lifecycle import Reason
from towline.domain.records import AgentFacts
from towline.errors import EngineError

FACTS = AgentFacts(agent_id="a1", boot_id="b", cpu=1.0, memory_bytes=1)


async def test_waits_for_its_engine_with_heartbeats_instead_of_failing() -> None:
    asked = 0
    greeted: list[AgentFacts] = []
    beats = 0

    async def facts() -> AgentFacts:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise EngineError("no engine", reason=Reason.ENGINE_UNAVAILABLE, retryable=True)
        return FACTS

    class Signals:
        async def hello(self, facts: AgentFacts) -> None:
            greeted.append(facts)

    def count(*_: object) -> None:
        nonlocal beats
        beats += 1

    environment = ActivityEnvironment()
    environment.on_heartbeat = count
    presence = PresenceActivities(facts=facts, signals=Signals(), beat_seconds=0.01)
    attending = asyncio.ensure_future(environment.run(presence.attend))
    await eventually(lambda: greeted == [FACTS] and beats >= 6, timeout=5)
    assert asked == 4
    environment.cancel()
    await asyncio.wait({attending})
