"""An agent's containers: started once however often it is asked, ended without a trace."""

import asyncio
import contextlib
import logging
import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakValueDictionary

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from towline.domain.containers import ContainerExit, EndContainer, LogPage, ReadLogs, StartContainer, StartedContainer
from towline.domain.ids import LABEL_AGENT, LABEL_FLEET, LABEL_KERNEL, LABEL_SESSION, container_name, network_name
from towline.domain.lifecycle import Reason
from towline.engine.client import Engine
from towline.engine.container_calls import State, ask, has_labels, inspect, ports_of, remove, text_of, time_of
from towline.engine.container_spec import creation
from towline.engine.failures import container_failure
from towline.engine.log_follower import LogFollowers
from towline.engine.logs import tail_of
from towline.engine.session_networks import SessionNetworks
from towline.errors import ContainerError

_log = logging.getLogger(__name__)

_START_TIMEOUT_SECONDS: Final = 60.0
_REMOVE_TIMEOUT_SECONDS: Final = 60.0
_READERS_PATIENCE_SECONDS: Final = 5.0
_REMEMBERED_REMOVALS: Final = 4096
_NAME_TAKEN: Final = re.compile(r"name .* (is )?already in use", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class OurContainer:
    """A container with this agent's labels, as a list shows it."""

    container_id: str
    session_id: str
    kernel: int
    state: State
    created_at: datetime


class EngineContainers:
    """Satisfies the Protocol `Containers` of the activities, for one engine.

    Starts and removals are limited: beyond a few in flight an engine only gets slower, and many removals at once can
    deadlock some releases. What is done to one container is done by one at a time (`turn`).
    """

    def __init__(
        self, *, engine: Engine, agent_id: str, fleet_id: str, starts_max: int = 3, removals_max: int = 2
    ) -> None:
        self._engine = engine
        # A stop holds its thread for as long as the grace is. It shall not be one of those that all other calls need.
        self._patient_engine = Engine(engine.url, call_timeout_seconds=engine.call_timeout_seconds)
        self._fleet_id = fleet_id
        self._labels: Final = {LABEL_FLEET: fleet_id, LABEL_AGENT: agent_id}
        self._starts = asyncio.Semaphore(starts_max)
        self._removals = asyncio.Semaphore(removals_max)
        self._turns: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()
        self._removed: deque[str] = deque(maxlen=_REMEMBERED_REMOVALS)
        self._followers = LogFollowers(engine)
        self.networks = SessionNetworks(engine, self._labels)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that all containers of this agent carry."""
        return dict(self._labels)

    async def start(self, request: StartContainer) -> StartedContainer:
        """Create, or find what an earlier try has created, then start. Raises `EngineError` with a typed reason; what failed
        for good has been removed by then. A container that has run already is not started again: it is answered as it is."""
        async with self._starts:
            # A create that is on its way cannot be called back. It goes on when the caller is cancelled, and as it has the
            # container's turn, an `end` that follows comes after it and finds what it has made.
            return await asyncio.shield(asyncio.ensure_future(self._start(request)))

    async def end(self, request: EndContainer) -> ContainerExit:
        """Stop with grace, keep the tail, remove. What is not there, or is not ours, is left as it is."""
        async with self.turn(request.session_id, request.kernel):
            found = await self._find(request.session_id, request.kernel)
            if found is None:
                return ContainerExit(kernel=request.kernel, message="there was no such container")
            if found["State"].get("Running"):
                await self._stop(found["Id"], request.grace_seconds)
            found = await self.inspect(found["Id"]) or found
            ended = await self.exit_of(found, request.kernel)
            await self.remove(found["Id"])
        if network_name(request.session_id) in found["NetworkSettings"]["Networks"]:
            await self.networks.leave(request.session_id)
        return ended

    async def read_logs(self, request: ReadLogs) -> LogPage:
        """A page of the live log; waits a moment for new output where there is none."""
        found = await self._find(request.session_id, request.kernel)
        if found is None:
            return LogPage(packed="", next_offset=request.offset, ended=True, found=False)
        return await self._followers.page(
            found["Id"],
            tty=bool(found["Config"].get("Tty")),
            running=bool(found["State"].get("Running")),
            offset=request.offset,
            limit_bytes=request.limit_bytes,
        )

    def turn(self, session_id: str, kernel: int) -> asyncio.Lock:
        """Held by whoever starts, ends or describes that kernel's container."""
        return self._turns.setdefault((session_id, kernel), asyncio.Lock())

    def has_removed(self, container_id: str) -> bool:
        """Whether we have removed that container ourselves, lately."""
        return container_id in self._removed

    async def list_ours(self) -> list[OurContainer]:
        """All containers with this agent's labels, whatever their state."""
        labels = [f"{key}={value}" for key, value in self._labels.items()]
        filters = {"label": [*labels, LABEL_SESSION, LABEL_KERNEL]}
        listed = await ask(self._engine, lambda client: client.containers(all=True, filters=filters))
        return [_ours(container) for container in listed]

    async def inspect(self, name_or_id: str) -> dict[str, Any] | None:
        """What the engine knows of a container, None where there is none."""
        return await ask(self._engine, lambda client: inspect(client, name_or_id))

    async def exit_of(self, found: Mapping[str, Any], kernel: int) -> ContainerExit:
        """How an inspected container that does not run has ended, with its log's tail. `exit_code` None: it has never run."""
        state = found["State"]
        ran = time_of(state.get("StartedAt")) is not None
        return ContainerExit(
            kernel=kernel,
            container_id=found["Id"],
            exit_code=state.get("ExitCode") if ran else None,
            oom_killed=bool(state.get("OOMKilled")),
            finished_at=time_of(state.get("FinishedAt")),
            log=await tail_of(self._engine, found["Id"], tty=bool(found["Config"].get("Tty"))),
            message=str(state.get("Error") or ""),
        )

    async def wait_until_read(self, container_id: str) -> None:
        """Wait for those who read the live log of a container that has exited, so that they see its end; not for long."""
        await self._followers.wait_until_read(container_id, patience_seconds=_READERS_PATIENCE_SECONDS)

    async def remove(self, container_id: str) -> None:
        """Remove a container and its anonymous volumes. One that is gone, or on its way, is a success."""
        # Remembered first: the engine's events about a removal come before its answer.
        self._removed.append(container_id)
        async with self._removals:
            await ask(
                self._engine, lambda client: remove(client, container_id), timeout_seconds=_REMOVE_TIMEOUT_SECONDS
            )

    def close(self) -> None:
        """Give back threads and connections. Containers go on."""
        self._followers.close()
        self._patient_engine.close()

    async def _start(self, request: StartContainer) -> StartedContainer:
        info, store = await self._engine.info(), await self._engine.store_kind()
        ours = self._labels_of(request.spec.session_id, request.kernel)

        def start(client: docker.APIClient, network_id: str | None) -> StartedContainer:
            arguments = creation(
                client,
                request,
                fleet_id=self._fleet_id,
                cpu_max=float(info.get("NCPU", math.inf)),
                store=store,
                network_id=network_id,
            )
            return _start(client, arguments, ours)

        async with (
            self.turn(request.spec.session_id, request.kernel),
            self.networks.joined(request.spec) as network_id,
        ):
            return await ask(
                self._engine, lambda client: start(client, network_id), timeout_seconds=_START_TIMEOUT_SECONDS
            )

    async def _stop(self, container_id: str, grace_seconds: float) -> None:
        def stop(client: docker.APIClient) -> None:
            with contextlib.suppress(NotFound):
                client.stop(container_id, timeout=math.ceil(grace_seconds))

        # The engine answers when the process is gone. To the deadline of this call the SDK adds the grace.
        await ask(self._patient_engine, stop)

    async def _find(self, session_id: str, kernel: int) -> dict[str, Any] | None:
        """The kernel's container as inspected; None where there is none of ours."""
        found = await self.inspect(container_name(session_id, kernel))
        return found if found and has_labels(found, self._labels_of(session_id, kernel)) else None

    def _labels_of(self, session_id: str, kernel: int) -> dict[str, str]:
        return {**self._labels, LABEL_SESSION: session_id, LABEL_KERNEL: str(kernel)}


def _ours(listed: Mapping[str, Any]) -> OurContainer:
    return OurContainer(
        container_id=listed["Id"],
        session_id=listed["Labels"][LABEL_SESSION],
        kernel=int(listed["Labels"][LABEL_KERNEL]),
        state=State.of(listed["State"]),
        created_at=datetime.fromtimestamp(listed["Created"], UTC),
    )


def _start(client: docker.APIClient, arguments: dict[str, Any], ours: Mapping[str, str]) -> StartedContainer:
    container_id, has_run = _create_or_find(client, arguments, ours)
    if not has_run:
        try:
            client.start(container_id)
        except APIError as error:
            _undo(client, container_id)
            raise container_failure(text_of(error), status=error.status_code) from error
    found = inspect(client, container_id)
    if found is None:
        raise ContainerError(
            "the container was removed from outside while it was being started",
            reason=Reason.CONTAINER_LOST,
            retryable=False,
        )
    return StartedContainer(
        container_id=container_id, started_at=time_of(found["State"].get("StartedAt")), ports=ports_of(found)
    )


def _create_or_find(client: docker.APIClient, arguments: dict[str, Any], ours: Mapping[str, str]) -> tuple[str, bool]:
    """The container's id, and whether it has run already: then it is not started again, for a command runs once."""
    try:
        return str(client.create_container(**arguments)["Id"]), False
    except APIError as error:
        if not _NAME_TAKEN.search(text_of(error)):
            raise container_failure(text_of(error), status=error.status_code) from error
    found = inspect(client, arguments["name"])
    if found is None:
        raise ContainerError(
            f"a container named {arguments['name']} has just been removed", reason=Reason.ENGINE_ERROR, retryable=True
        )
    if not has_labels(found, ours):
        raise ContainerError(
            f"a container named {arguments['name']} exists on the agent and is not ours; it was left alone",
            reason=Reason.ENGINE_ERROR,
            retryable=False,
        )
    return str(found["Id"]), time_of(found["State"].get("StartedAt")) is not None


def _undo(client: docker.APIClient, container_id: str) -> None:
    try:
        remove(client, container_id)
    except (DockerException, requests.RequestException) as error:
        # What the start has failed of is worth more to the caller than this. `end` and the search for orphans find it.
        _log.warning("%s could not be started, and not be removed: %s", container_id[:12], error)
