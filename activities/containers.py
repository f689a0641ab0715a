"""Containers on an agent: start, end, read logs."""

import asyncio
from typing import Final, Protocol

from temporalio import activity

from activities.failures import typed
from towline.domain.containers import (
    ContainerExit,
    EndContainer,
    LogPage,
    ReadLogs,
    StartContainer,
    StartedContainer,
)
from towline.domain.queues import ActivityName

_BEAT_SECONDS: Final = 2.0


class Containers(Protocol):
    """An agent's containers. Raises `towline.errors.ContainerError` with a typed reason; each method can be repeated."""

    async def start(self, request: StartContainer) -> StartedContainer:
        """Find or create, then start. A permanent failure has removed what it made before it is raised."""
        ...

    async def end(self, request: EndContainer) -> ContainerExit:
        """Stop, keep the tail, remove. A container that is not there is a success with `exit_code` None."""
        ...

    async def read_logs(self, request: ReadLogs) -> LogPage:
        """A page of the live log."""
        ...


class KnownExits(Protocol):
    """What a session's workflow has been told of exits."""

    async def exit_of(self, session_id: str, kernel: int) -> ContainerExit | None:
        """The exit that the workflow has accepted, or None."""
        ...


class ContainerActivities:
    """The container activities of one agent."""

    def __init__(self, *, containers: Containers, exits: KnownExits) -> None:
        self._containers = containers
        self._exits = exits

    @activity.defn(name=ActivityName.START_CONTAINER)
    @typed
    async def start_container(self, request: StartContainer) -> StartedContainer:
        """Start the kernel's container, once however often this is repeated."""
        # An earlier attempt may have started the container and died before it could say so; if the command was short, its
        # exit has been accepted and the container removed since. Finding nothing would then mean to run it twice.
        if activity.info().attempt > 1:
            known = await self._exits.exit_of(request.spec.session_id, request.kernel)
            if known is not None:
                return StartedContainer(container_id=known.container_id or "", started_at=known.finished_at)
        starting = asyncio.ensure_future(self._containers.start(request))
        try:
            while not starting.done():
                await asyncio.wait({starting}, timeout=_BEAT_SECONDS)
                activity.heartbeat()
        finally:
            starting.cancel()
        return await starting

    @activity.defn(name=ActivityName.END_CONTAINER)
    @typed
    async def end_container(self, request: EndContainer) -> ContainerExit:
        """Stop and remove the kernel's container, keeping its log's tail."""
        return await self._containers.end(request)

    @activity.defn(name=ActivityName.READ_LOGS)
    @typed
    async def read_logs(self, request: ReadLogs) -> LogPage:
        """A page of the live log."""
        return await self._containers.read_logs(request)
