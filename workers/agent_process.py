"""The agent's process: what it is made of, and its ordered stop."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from docker.constants import DEFAULT_UNIX_SOCKET

from towline.domain.agents import AgentFacts, Claim
from towline.engine.client import Engine
from towline.engine.containers import EngineContainers
from towline.engine.exits import ExitWatcher
from towline.engine.facts import engine_facts, new_boot_id
from towline.engine.images import EngineImages
from towline.engine.pull_attempts import PullSettings
from towline.engine.registry import Registries
from towline.errors import ConflictError
from towline.settings import Settings
from workers.agent import agent_workers
from workers.connection import connect, fleet_id
from workers.custody import Custody
from workers.host import HostHold
from workers.links import Links
from workers.shutdown import stop_requested

_log = logging.getLogger(__name__)


async def run_agent(settings: Settings, agent_id: str) -> None:
    """The workers of one agent, its exit watcher and its look for orphans, until SIGTERM or SIGINT. Containers go on without
    it. Raises `ConflictError` when another worker serves the agent, at once or later."""
    stop = stop_requested()
    client = await connect(settings.temporal.address, settings.temporal.namespace, identity=f"agent/{agent_id}")
    fleet = await fleet_id(client)
    hold = HostHold(fleet, agent_id)
    boot_id = new_boot_id()
    custody = Custody(client, agent_id, fleet)
    links = Links(client, agent_id, on_hello=custody.forget)
    try:
        claim = Claim(boot_id=boot_id, where=f"process {os.getpid()} on {socket.gethostname()}", host=hold.host)
        _log.info("claiming agent %s; the control worker has to answer", agent_id)
        if await _unless(stop, links.claim(claim)):
            await _serve(settings, boot_id, custody, links, stop)
    finally:
        hold.release()


async def _serve(settings: Settings, boot_id: str, custody: Custody, links: Links, stop: asyncio.Event) -> None:
    engine = Engine(settings.agent.docker_host or os.environ.get("DOCKER_HOST") or _default_docker_host())
    registries = Registries(mirrors=engine.hub_mirrors)
    containers = EngineContainers(
        engine=engine,
        agent_id=links.agent_id,
        fleet_id=custody.fleet,
        starts_max=settings.agent.starts_in_flight_max,
    )
    superseded = asyncio.Event()
    workers = agent_workers(
        links.client,
        agent_id=links.agent_id,
        images=_images(settings, links.agent_id, engine, registries),
        containers=containers,
        boot_id=boot_id,
        facts=_facts(settings, links.agent_id, boot_id, engine),
        links=links,
        on_superseded=superseded.set,
    )
    every = settings.agent.look_every_seconds
    watcher = ExitWatcher(engine, containers, links.container_exited, missing=custody.missing, look_every_seconds=every)
    loops = [
        asyncio.create_task(loop) for loop in (watcher.run(), custody.sweep_forever(containers, every_seconds=every))
    ]
    try:
        async with AsyncExitStack() as stack:
            for worker in workers:
                await stack.enter_async_context(worker)
            _log.info("agent %s ready", links.agent_id)
            await _unless(stop, superseded.wait())
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await registries.close()
        containers.close()
        engine.close()
    if superseded.is_set():
        raise ConflictError(f"another worker has claimed agent {links.agent_id} while this one was out of sight")


async def _unless(stop: asyncio.Event, work: Awaitable[object]) -> bool:
    """Do it, unless a stop is asked for first. True: it is done. Raises what it raises."""
    tasks: tuple[asyncio.Future[Any], ...] = (asyncio.ensure_future(work), asyncio.ensure_future(stop.wait()))
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
    if tasks[0] not in done:
        return False
    await tasks[0]
    return True


def _images(settings: Settings, agent_id: str, engine: Engine, registries: Registries) -> EngineImages:
    return EngineImages(
        engine=engine,
        agent_id=agent_id,
        registries=registries,
        settings=PullSettings(thresholds=settings.pull.thresholds, attempts_max=settings.pull.attempts_max),
        unique_pulls_max=settings.agent.unique_pulls_max,
    )


def _facts(settings: Settings, agent_id: str, boot_id: str, engine: Engine) -> Callable[[], Awaitable[AgentFacts]]:
    said = settings.agent

    async def facts() -> AgentFacts:
        return await engine_facts(
            engine,
            agent_id=agent_id,
            boot_id=boot_id,
            cpu=said.cpu,
            memory_bytes=said.memory_bytes,
            gpu=said.gpu,
            labels=dict(said.labels),
            resource_group=said.resource_group,
            grace_seconds=said.grace_seconds,
            running_grace_seconds=said.running_grace_seconds,
        )

    return facts


def _default_docker_host() -> str:
    return DEFAULT_UNIX_SOCKET.replace("http+unix", "unix")
