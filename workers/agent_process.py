"""The agent's process: what it is made of, and its ordered stop."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from docker.constants import DEFAULT_UNIX_SOCKET

from towline.domain.records import AgentFacts
from towline.engine.client import Engine
from towline.engine.containers import EngineContainers
from towline.engine.exits import ExitWatcher
from towline.engine.facts import engine_facts, new_boot_id
from towline.engine.images import EngineImages
from towline.engine.pull_attempts import PullSettings
from towline.engine.registry import Registries
from towline.settings import Settings
from workers.agent import agent_workers
from workers.connection import connect, fleet_id
from workers.custody import Custody
from workers.links import Links
from workers.shutdown import stop_requested

_log = logging.getLogger(__name__)


async def run_agent(settings: Settings, agent_id: str) -> None:
    """The workers of one agent and its exit watcher, until SIGTERM or SIGINT. Containers go on without it."""
    stop = stop_requested()
    client = await connect(settings.temporal.address, settings.temporal.namespace, identity=f"agent/{agent_id}")
    engine = Engine(settings.agent.docker_host or os.environ.get("DOCKER_HOST") or _default_docker_host())
    registries = Registries(mirrors=engine.hub_mirrors)
    fleet = await fleet_id(client)
    custody = Custody(client, agent_id, fleet)
    links = Links(client, agent_id, on_hello=custody.forget)
    containers = EngineContainers(
        engine=engine,
        agent_id=agent_id,
        fleet_id=fleet,
        starts_max=settings.agent.starts_in_flight_max,
    )
    workers = agent_workers(
        client,
        agent_id=agent_id,
        images=_images(settings, agent_id, engine, registries),
        containers=containers,
        facts=_facts(settings, agent_id, engine),
        links=links,
    )
    look_every = settings.agent.look_every_seconds
    watcher = ExitWatcher(
        engine, containers, links.container_exited, missing=custody.missing, look_every_seconds=look_every
    )
    loops = [
        asyncio.create_task(watcher.run()),
        asyncio.create_task(custody.sweep_forever(containers, every_seconds=look_every)),
    ]
    try:
        async with AsyncExitStack() as stack:
            for worker in workers:
                await stack.enter_async_context(worker)
            await links.announce()
            _log.info("agent %s ready", agent_id)
            await stop.wait()
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await registries.close()
        containers.close()
        engine.close()


def _images(settings: Settings, agent_id: str, engine: Engine, registries: Registries) -> EngineImages:
    return EngineImages(
        engine=engine,
        agent_id=agent_id,
        registries=registries,
        settings=PullSettings(thresholds=settings.pull.thresholds, attempts_max=settings.pull.attempts_max),
        unique_pulls_max=settings.agent.unique_pulls_max,
    )


def _facts(settings: Settings, agent_id: str, engine: Engine) -> Callable[[], Awaitable[AgentFacts]]:
    boot_id = new_boot_id()

    async def facts() -> AgentFacts:
        return await engine_facts(
            engine,
            agent_id=agent_id,
            boot_id=boot_id,
            cpu=settings.agent.cpu,
            memory_bytes=settings.agent.memory_bytes,
            labels=dict(settings.agent.labels),
        )

    return facts


def _default_docker_host() -> str:
    return DEFAULT_UNIX_SOCKET.replace("http+unix", "unix")
