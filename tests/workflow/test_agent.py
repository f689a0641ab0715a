"""An agent's presence: online while it attends, lost after a grace, online again when it is back."""

from contextlib import AsyncExitStack
from datetime import timedelta

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.rig.eventually import eventually
from tests.workflow.fleet import workers_of
from tests.workflow.world import World
from towline.domain.ids import new_id
from workers.agent import agent_workers
from workers.links import Links
from workflows.starting import start_agent


def agent_of(env: WorkflowEnvironment, world: World, agent_id: str) -> tuple[Worker, Worker]:
    return agent_workers(
        env.client,
        agent_id=agent_id,
        images=world.images,
        containers=world.containers,
        facts=world.agent_facts,
        links=Links(env.client, agent_id),
    )


async def test_is_online_then_lost_then_online(env: WorkflowEnvironment, world: World) -> None:
    agent_id = new_id("agent")

    async def is_online(online: bool) -> None:
        def seen() -> None:
            assert [record.online for record in world.records.agents_seen][-1:] == [online]

        await eventually(seen, timeout=15)

    async with AsyncExitStack() as control:
        [worker, *_] = workers_of(env.client, world, ())
        await control.enter_async_context(worker)
        await start_agent(env.client, agent_id, grace=timedelta(milliseconds=300))
        pulls, short = agent_of(env, world, agent_id)
        async with pulls, short:
            await is_online(True)
        await is_online(False)
        pulls, short = agent_of(env, world, agent_id)
        async with pulls, short:
            await is_online(True)
        await env.client.get_workflow_handle(f"agent/{agent_id}").terminate()
