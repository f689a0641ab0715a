"""An agent attends from the first moment, and tells how its engine is whenever that changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.presence import PresenceActivities
from tests.rig.eventually import eventually
from towline.domain.agents import AgentFacts, Attend, EngineDown
from towline.domain.lifecycle import Reason
from towline.errors import EngineError

FACTS = AgentFacts(agent_id="a1", boot_id="b", cpu=1.0, memory_bytes=1)
MORE = replace(FACTS, cpu=2.0)
NO_ENGINE = EngineError("no engine", reason=Reason.ENGINE_UNAVAILABLE, retryable=True)
DOWN = EngineDown(boot_id="b", message="no engine")


@dataclass(kw_only=True)
class Desk:
    """An engine whose answers come from `answers` (the last one again and again), and what the agent has said."""

    answers: list[AgentFacts | EngineError]
    asked: int = 0
    beats: int = 0
    superseded: int = 0
    said: list[AgentFacts | EngineDown] = field(default_factory=list)

    async def facts(self) -> AgentFacts:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, EngineError):
            raise answer
        return answer

    async def hello(self, facts: AgentFacts) -> None:
        self.said.append(facts)

    async def engine_down(self, down: EngineDown) -> None:
        self.said.append(down)

    def count(self, *_: object) -> None:
        self.beats += 1

    def supersede(self) -> None:
        self.superseded += 1

    def presence(self) -> tuple[ActivityEnvironment, PresenceActivities]:
        environment = ActivityEnvironment()
        environment.on_heartbeat = self.count
        presence = PresenceActivities(
            boot_id="b",
            facts=self.facts,
            signals=self,
            on_superseded=self.supersede,
            beat_seconds=0.01,
            probe_seconds=0.01,
        )
        return environment, presence


@asynccontextmanager
async def attending(*answers: AgentFacts | EngineError) -> AsyncIterator[Desk]:
    desk = Desk(answers=list(answers))
    environment, presence = desk.presence()
    task = asyncio.ensure_future(environment.run(presence.attend, Attend(boot_id="b")))
    yield desk
    assert not task.done()
    environment.cancel()
    await asyncio.wait({task})


async def test_says_hello_once_and_beats_on() -> None:
    async with attending(FACTS) as desk:
        await eventually(lambda: desk.asked >= 5 and desk.beats >= 5, timeout=5)
    assert desk.said == [FACTS]


async def test_waits_for_its_engine_with_heartbeats_instead_of_failing() -> None:
    async with attending(NO_ENGINE, NO_ENGINE, NO_ENGINE, FACTS) as desk:
        await eventually(lambda: desk.said == [DOWN, FACTS] and desk.beats >= 3, timeout=5)


async def test_one_question_without_an_answer_says_nothing() -> None:
    async with attending(FACTS, NO_ENGINE, FACTS) as desk:
        await eventually(lambda: desk.asked >= 5, timeout=5)
    assert desk.said == [FACTS]


async def test_an_engine_that_goes_and_comes_is_told_each_time() -> None:
    async with attending(FACTS, NO_ENGINE, NO_ENGINE, NO_ENGINE, MORE) as desk:
        await eventually(lambda: desk.said == [FACTS, DOWN, MORE], timeout=5)


async def test_a_change_of_what_it_is_is_told() -> None:
    async with attending(FACTS, MORE) as desk:
        await eventually(lambda: desk.said == [FACTS, MORE], timeout=5)


async def test_another_life_of_the_agent_is_not_attended() -> None:
    desk = Desk(answers=[FACTS])
    environment, presence = desk.presence()
    with pytest.raises(ApplicationError, match="another worker has claimed"):
        await environment.run(presence.attend, Attend(boot_id="a later one"))
    assert (desk.superseded, desk.said) == (1, [])


async def test_a_worker_that_stops_takes_its_leave_at_once() -> None:
    desk = Desk(answers=[FACTS])
    environment, presence = desk.presence()
    attending = asyncio.ensure_future(environment.run(presence.attend, Attend(boot_id="b")))
    await eventually(lambda: desk.said == [FACTS], timeout=5)
    environment.worker_shutdown()
    await asyncio.wait_for(attending, 5)
