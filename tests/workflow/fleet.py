"""The real workflows, activities and workers around a small world, and a test's way to its sessions."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.rig.eventually import eventually
from tests.workflow.world import World
from towline.domain.agents import Leave, Stay
from towline.domain.containers import ContainerExit
from towline.domain.ids import new_session_id
from towline.domain.queues import SearchAttribute, Signal, session_workflow_id
from towline.domain.sessions import Actor, EndRequest, Resources, SessionSpec
from workers.agent import agent_workers
from workers.control import control_worker
from workers.links import Links
from workers.sandbox import sandboxed_runner
from workflows.session import Session
from workflows.starting import start_session

ADMIN = Actor(user_id="usr-admin", name="admin", superadmin=True)
OWNER = Actor(user_id="usr-owner", name="owner")


def program(name: str) -> str:
    """A program that the virtual environment ships."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is not installed: run `make setup`"
    return found


async def register_search_attributes(client: Client) -> None:
    """What every namespace of ours has."""
    kinds = dict.fromkeys(map(str, SearchAttribute), IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
    kinds[SearchAttribute.AGENTS] = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
    await client.operator_service.add_search_attributes(request)


@dataclass(kw_only=True)
class Fleet:
    """The workers of one test, and its way to sessions."""

    client: Client
    world: World
    env: WorkflowEnvironment

    def spec(self, **changes: object) -> SessionSpec:
        plain = SessionSpec(
            session_id=new_session_id(),
            owner_id=OWNER.user_id,
            owner=OWNER.name,
            image="127.0.0.1:5000/demo/hello:1",
            command=("echo", "hello"),
            resources=Resources(cpu=1.0, memory_bytes=64 << 20),
        )
        return replace(plain, **changes)  # type: ignore[arg-type]  # the fields are the test's own

    async def start(self, spec: SessionSpec) -> WorkflowHandle[Session, str]:
        await start_session(self.client, spec)
        return self.client.get_workflow_handle_for(Session.run, session_workflow_id(spec.session_id))

    async def result(self, handle: WorkflowHandle[Session, str]) -> str:
        """The session's final status. The time-skipping server drops the long poll when it skips, so it is asked again."""

        async def closed() -> str:
            try:
                return await handle.result()
            except RuntimeError as error:
                raise LookupError("the poll ended before the workflow") from error

        answer: str = await eventually(closed, timeout=20)
        return answer

    async def ask(self, spec: SessionSpec, signal: Signal, *, actor: Actor = OWNER, why: str = "") -> None:
        handle = self.client.get_workflow_handle(session_workflow_id(spec.session_id))
        await handle.signal(signal, EndRequest(actor=actor, why=why))

    async def tell(self, spec: SessionSpec, told: Leave | Stay) -> None:
        """As the workflow of an agent does."""
        signal = Signal.AGENT_LEAVE if isinstance(told, Leave) else Signal.AGENT_STAY
        await self.client.get_workflow_handle(session_workflow_id(spec.session_id)).signal(signal, told)

    async def exit(self, spec: SessionSpec, *, kernel: int = 0, code: int = 0, oom: bool = False) -> None:
        """The container exits by itself, and its agent says so."""
        found = self.world.containers.containers.pop((spec.session_id, kernel), None)
        exit_ = ContainerExit(kernel=kernel, container_id=f"c{kernel}", exit_code=code, oom_killed=oom)
        await Links(self.client, found.agent_id if found else "a1").container_exited(spec.session_id, exit_)


def workers_of(client: Client, world: World, agent_ids: tuple[str, ...]) -> list[Worker]:
    """A control worker, and the two workers of each agent."""
    workers = [control_worker(client, world.records, runner=sandboxed_runner())]
    for agent_id in agent_ids:
        workers += agent_workers(
            client,
            agent_id=agent_id,
            images=world.images,
            containers=world.containers,
            boot_id="boot",
            facts=world.facts_of(agent_id, "boot"),
            links=Links(client, agent_id),
        )
    return workers


@asynccontextmanager
async def running_fleet(env: WorkflowEnvironment, world: World) -> AsyncIterator[Fleet]:
    """A control worker and two agents, for as long as the block lasts."""
    async with AsyncExitStack() as stack:
        for worker in workers_of(env.client, world, ("a1", "a2")):
            await stack.enter_async_context(worker)
        yield Fleet(client=env.client, world=world, env=env)
