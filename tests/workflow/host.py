"""Where one agent is served in a workflow test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio.testing import WorkflowEnvironment

from tests.rig.eventually import eventually
from tests.workflow.world import World
from towline.domain.agents import AgentStatus, Claim
from workers.agent import agent_workers
from workers.links import Links


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
