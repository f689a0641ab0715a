"""An agent's presence: served by one worker, online while it attends and its engine answers, lost after a grace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.rig.eventually import eventually
from tests.workflow.fleet import workers_of
from tests.workflow.world import World
from towline.domain.agents import AgentStatus, Claim
from towline.domain.ids import new_id
from towline.domain.lifecycle import Reason
from towline.errors import ConflictError, EngineError
from workers.agent import agent_workers
from workers.links import Links

NO_ENGINE = EngineError("no engine", reason=Reason.ENGINE_UNAVAILABLE, retryable=True)


@dataclass(kw_only=True)
class Host:
    """Where one agent is served, and what the records know of it."""

    env: WorkflowEnvironment
    world: World
    agent_id: str

    async def claim(self, boot_id: str, *, host: str = "") -> None:
        await Links(self.env.client, self.agent_id).claim(Claim(boot_id=boot_id, where=f"process {boot_id}", host=host))

    @asynccontextmanager
    async def serving(self, boot_id: str, superseded: asyncio.Event | None = None) -> AsyncIterator[None]:
        pulls, short = agent_workers(
            self.env.client,
            agent_id=self.agent_id,
            images=self.world.images,
            containers=self.world.containers,
            boot_id=boot_id,
            facts=self.world.facts_of(self.agent_id, boot_id),
            links=Links(self.env.client, self.agent_id),
            on_superseded=(superseded or asyncio.Event()).set,
        )
        async with pulls, short:
            yield

    async def becomes(self, status: AgentStatus, boot_id: str) -> None:
        def seen() -> None:
            assert [(one.status, one.facts.boot_id) for one in self.world.records.agents_seen][-1:] == [
                (status, boot_id)
            ]

        await eventually(seen, timeout=30)


@pytest.fixture
async def host(env: WorkflowEnvironment, world: World) -> AsyncIterator[Host]:
    [control, *_] = workers_of(env.client, world, ())
    async with control:
        host = Host(env=env, world=world, agent_id=new_id("agent"))
        yield host
        await env.client.get_workflow_handle(f"agent/{host.agent_id}").terminate()


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
            await eventually(superseded.is_set, timeout=20)
