"""An agent's presence: served by one worker, online while it attends and its engine answers, lost after a grace."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tests.rig.eventually import eventually
from tests.workflow.fleet import ADMIN, Fleet, workers_of
from tests.workflow.host import Host
from tests.workflow.world import World
from towline.domain.agents import AgentStatus, Drain
from towline.domain.ids import new_id
from towline.domain.lifecycle import Reason
from towline.domain.queues import AgentSignal
from towline.errors import ConflictError, EngineError
from workflows.starting import start_session

NO_ENGINE = EngineError("no engine", reason=Reason.ENGINE_UNAVAILABLE, retryable=True)


@pytest.fixture
async def host(dev_env: WorkflowEnvironment, world: World) -> AsyncIterator[Host]:
    """On Temporal's dev server: the time-skipping server loses the workflow task that asks for the cancellation of an activity
    which has failed in the same instant."""
    [control, *_] = workers_of(dev_env.client, world, ())
    async with control:
        host = Host(env=dev_env, world=world, agent_id=new_id("agent"))
        yield host
        await dev_env.client.get_workflow_handle(f"agent/{host.agent_id}").terminate()


async def test_is_online_then_lost_after_the_grace_then_online(host: Host) -> None:
    await host.claim("b1")
    async with host.serving("b1"):
        await host.becomes(AgentStatus.ONLINE, "b1")
    await host.becomes(AgentStatus.LOST, "b1")
    await host.claim("b2")
    async with host.serving("b2"):
        await host.becomes(AgentStatus.ONLINE, "b2")


async def test_a_restart_within_the_grace_is_no_loss(host: Host, world: World) -> None:
    world.grace_seconds = 3600.0
    for boot_id in ("b1", "b2"):
        await host.claim(boot_id)
        async with host.serving(boot_id):
            await host.becomes(AgentStatus.ONLINE, boot_id)
    assert {one.status for one in world.records.agents_seen} == {AgentStatus.ONLINE}


async def test_an_engine_that_is_away_is_told_from_an_agent_that_is(host: Host, world: World) -> None:
    await host.claim("b1")
    async with host.serving("b1"):
        await host.becomes(AgentStatus.ONLINE, "b1")
        world.engine_failure = NO_ENGINE
        await host.becomes(AgentStatus.ENGINE_DOWN, "b1")
        assert world.records.agents_seen[-1].message == "no engine"
        world.engine_failure = None
        await host.becomes(AgentStatus.ONLINE, "b1")


class TestItsSessions:
    """The world's records say that one session is on the agent."""

    @pytest.fixture
    async def session(self, host: Host) -> AsyncIterator[WorkflowHandle[Any, Any]]:
        host.world.records.agents = (host.agent_id,)
        spec = Fleet(client=host.env.client, world=host.world, env=host.env).spec()
        await start_session(host.env.client, spec)
        await eventually(lambda: spec.session_id in host.world.records.holding, timeout=30)
        handle = host.env.client.get_workflow_handle(f"session/{spec.session_id}")
        yield handle
        await handle.terminate()

    async def heard(self, session: WorkflowHandle[Any, Any]) -> list[str]:
        """What the session was told, in order."""
        return [
            event.workflow_execution_signaled_event_attributes.signal_name
            async for event in session.fetch_history_events()
            if event.HasField("workflow_execution_signaled_event_attributes")
        ]

    async def test_are_told_that_it_is_lost_and_that_it_is_back(
        self, host: Host, session: WorkflowHandle[Any, Any]
    ) -> None:
        for boot_id, told in (("b1", []), ("b2", ["agent_leave", "agent_stay"])):
            await host.claim(boot_id)
            async with host.serving(boot_id):
                await host.becomes(AgentStatus.ONLINE, boot_id)
                await eventually(lambda: self.is_told(session, told), timeout=30)  # noqa: B023 (called in this round)
            await host.becomes(AgentStatus.LOST, boot_id)

    async def test_are_told_when_its_engine_stays_down(self, host: Host, session: WorkflowHandle[Any, Any]) -> None:
        await host.claim("b1")
        async with host.serving("b1"):
            await host.becomes(AgentStatus.ONLINE, "b1")
            host.world.engine_failure = NO_ENGINE
            await eventually(lambda: self.is_told(session, ["agent_leave"]), timeout=30)
            await host.becomes(AgentStatus.ENGINE_DOWN, "b1")
            host.world.engine_failure = None
            await eventually(lambda: self.is_told(session, ["agent_leave", "agent_stay"]), timeout=30)

    async def test_are_told_that_it_is_drained_and_that_it_is_not(
        self, host: Host, session: WorkflowHandle[Any, Any]
    ) -> None:
        agent = host.env.client.get_workflow_handle(f"agent/{host.agent_id}")
        await host.claim("b1")
        async with host.serving("b1"):
            await host.becomes(AgentStatus.ONLINE, "b1")
            await agent.signal(AgentSignal.DRAIN, Drain(actor=ADMIN, why="new disks"))
            await eventually(lambda: self.is_told(session, ["agent_leave"]), timeout=30)
            await agent.signal(AgentSignal.UNCORDON)
            await eventually(lambda: self.is_told(session, ["agent_leave", "agent_stay"]), timeout=30)

    async def is_told(self, session: WorkflowHandle[Any, Any], told: list[str]) -> bool:
        return [name for name in await self.heard(session) if name.startswith("agent_")] == told


class TestTwoWorkersOfOneId:
    async def test_the_second_is_refused_while_the_first_lives(self, host: Host) -> None:
        await host.claim("b1")
        async with host.serving("b1"):
            await host.becomes(AgentStatus.ONLINE, "b1")
            with pytest.raises(ConflictError, match="is served by process b1, which is alive"):
                await host.claim("b2")
            await host.claim("b1")

    async def test_the_second_follows_a_first_that_is_gone(self, host: Host) -> None:
        await host.claim("b1")
        async with host.serving("b1"):
            await host.becomes(AgentStatus.ONLINE, "b1")
        await host.claim("b2")

    async def test_from_a_host_that_has_room_for_one_it_need_not_wait(self, host: Host) -> None:
        await host.claim("b1", host="h")
        superseded = asyncio.Event()
        async with host.serving("b1", superseded):
            await host.becomes(AgentStatus.ONLINE, "b1")
            await host.claim("b2", host="h")
            # Were the first one alive after all, it would be told so as soon as it is to attend.
            await eventually(superseded.is_set, timeout=30)
