"""Record the histories that `test_replay.py` replays: `python -m tests.workflow.record_histories [scenario …]`.

Runs every scenario (or those named) on a Temporal dev server of its own, and writes one JSON file per workflow.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from activities.payloads import data_converter
from tests.workflow.fleet import ADMIN, Fleet, program, register_search_attributes, workers_of
from tests.workflow.host import Host
from tests.workflow.scenarios import SCENARIOS, Scenario
from tests.workflow.world import World
from towline.domain.agents import AgentStatus, Drain
from towline.domain.lifecycle import Reason
from towline.domain.queues import AgentSignal, agent_workflow_id, session_workflow_id
from towline.errors import EngineError
from workers.control import control_worker
from workers.sandbox import sandboxed_runner

AGENT: Final = "agent"
HISTORIES: Final = Path(__file__).parent / "histories"
_ROOT: Final = Path(__file__).resolve().parents[2]


async def record(env: WorkflowEnvironment, name: str, scenario: Scenario) -> None:
    """Run one scenario, and write the histories of the session and of its children."""
    world = World()
    workers = workers_of(env.client, world, ("a1",))
    running = [asyncio.create_task(worker.run()) for worker in workers]
    spec = await scenario(Fleet(client=env.client, world=world, env=env))
    await _write(env.client, session_workflow_id(spec.session_id), HISTORIES / f"{name}.session.json")
    async for child in env.client.list_workflows(f'ParentWorkflowId="{session_workflow_id(spec.session_id)}"'):
        await _write(env.client, child.id, HISTORIES / f"{name}.kernel-start.json")
    for worker in workers:
        await worker.shutdown()
    await asyncio.gather(*running)


async def record_agent(env: WorkflowEnvironment) -> None:
    """An agent that comes, loses its engine and gets it back, is drained and used again, goes, and comes with another worker."""
    world = World()
    host = Host(env=env, world=world, agent_id="a1")
    agent = env.client.get_workflow_handle(agent_workflow_id(host.agent_id))
    async with control_worker(env.client, world.records, runner=sandboxed_runner()):
        await host.claim("b1")
        async with host.serving("b1"):
            await host.becomes(AgentStatus.ONLINE, "b1")
            world.engine_failure = EngineError("no engine", reason=Reason.ENGINE_UNAVAILABLE, retryable=True)
            await host.becomes(AgentStatus.ENGINE_DOWN, "b1")
            world.engine_failure = None
            await host.becomes(AgentStatus.ONLINE, "b1")
            await agent.signal(AgentSignal.DRAIN, Drain(actor=ADMIN))
            await agent.signal(AgentSignal.UNCORDON)
        await host.becomes(AgentStatus.LOST, "b1")
        await host.claim("b2")
        async with host.serving("b2"):
            await host.becomes(AgentStatus.ONLINE, "b2")
        await agent.terminate()
        await _write(env.client, agent.id, HISTORIES / f"{AGENT}.agent.json")


async def _write(client: Client, workflow_id: str, path: Path) -> None:
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    # Stack traces name files; where this checkout lies is nobody's business.
    path.write_text(history.to_json().replace(f"{_ROOT}/", "") + "\n")
    sys.stdout.write(f"{path.name}: {len(history.events)} events\n")


async def main(names: list[str]) -> None:
    """Record the named scenarios, or all."""
    HISTORIES.mkdir(exist_ok=True)
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=program("temporal"), data_converter=data_converter
    ) as env:
        await register_search_attributes(env.client)
        for name in names or (*SCENARIOS, AGENT):
            await (record_agent(env) if name == AGENT else record(env, name, SCENARIOS[name]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
