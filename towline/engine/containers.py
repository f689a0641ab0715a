"""An agent's containers: started once however often it is asked, ended without a trace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import docker
from docker.errors import APIError, NotFound

from towline.domain.containers import ContainerExit, EndContainer, LogPage, ReadLogs, StartContainer, StartedContainer
from towline.domain.ids import LABEL_AGENT, LABEL_FLEET, LABEL_KERNEL, LABEL_SESSION, container_name
from towline.domain.lifecycle import Reason
from towline.engine.client import Engine
from towline.engine.container_spec import creation
from towline.engine.failures import container_failure
from towline.engine.log_follower import LogFollowers
from towline.engine.logs import tail_of
from towline.errors import ContainerError

_START_TIMEOUT_SECONDS: Final = 120.0
_REMOVE_TIMEOUT_SECONDS: Final = 60.0


class EngineContainers:
    """Satisfies the Protocol `Containers` of the activities, for one engine.

    Starts and removals are limited: beyond a few in flight an engine only gets slower, and many removals at once can
    deadlock some releases.
    """

    def __init__(
        self, *, engine: Engine, agent_id: str, fleet_id: str, starts_max: int = 3, removals_max: int = 2
    ) -> None:
        self._engine = engine
        self._agent_id = agent_id
        self._fleet_id = fleet_id
        self._starts = asyncio.Semaphore(starts_max)
        self._removals = asyncio.Semaphore(removals_max)
        self._busy: dict[str, int] = {}
        self._followers = LogFollowers(engine)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that all containers of this agent carry."""
        return {LABEL_FLEET: self._fleet_id, LABEL_AGENT: self._agent_id}

    def is_busy(self, name: str) -> bool:
        """Whether a container of that name is being started or ended right now."""
        return name in self._busy

    async def start(self, request: StartContainer) -> StartedContainer:
        """Create, or find what an earlier try has created, then start. Raises `EngineError` with a typed reason; what could
        not be started has been removed by then."""
        name = container_name(request.spec.session_id, request.kernel)
        async with self._working_on(name), self._starts:
            return await self._engine.call(
                lambda client: _start(client, request, self._fleet_id), timeout_seconds=_START_TIMEOUT_SECONDS
            )

    async def end(self, request: EndContainer) -> ContainerExit:
        """Stop with grace, keep the tail, remove. What is not there, or is not ours, is left as it is."""
        name = container_name(request.session_id, request.kernel)
        async with self._working_on(name):
            found = await self._inspect(name)
            if found is None or not self._is_ours(found):
                return ContainerExit(kernel=request.kernel, message="there was no such container")
            container_id = found["Id"]
            if found["State"].get("Running"):
                await self._stop(container_id, request.grace_seconds)
            ended = await self.describe_exit(container_id, request.kernel)
            await self.remove(container_id)
            return ended

    async def read_logs(self, request: ReadLogs) -> LogPage:
        """A page of the live log; waits a moment for new output where there is none."""
        name = container_name(request.session_id, request.kernel)
        found = await self._inspect(name)
        if found is None or not self._is_ours(found):
            return LogPage(packed="", next_offset=request.offset, ended=True, found=False)
        return await self._followers.page(found["Id"], request.offset, request.limit_bytes)

    async def describe_exit(self, container_id: str, kernel: int) -> ContainerExit:
        """How a container that does not run any more has ended, with its log's tail."""
        found = await self._inspect(container_id)
        if found is None:
            return ContainerExit(kernel=kernel, container_id=container_id, message="the container is gone")
        state = found["State"]
        ran = not str(state.get("StartedAt") or "0001").startswith("0001")
        return ContainerExit(
            kernel=kernel,
            container_id=container_id,
            exit_code=state.get("ExitCode") if ran else None,
            oom_killed=bool(state.get("OOMKilled")),
            finished_at=time_of(state.get("FinishedAt")),
            log=await tail_of(self._engine, container_id),
            message=str(state.get("Error") or ""),
        )

    async def remove(self, container_id: str) -> None:
        """Remove a container and its anonymous volumes. One that is gone, or on its way, is a success."""
        async with self._removals:
            await self._engine.call(
                lambda client: _remove(client, container_id), timeout_seconds=_REMOVE_TIMEOUT_SECONDS
            )

    async def _stop(self, container_id: str, grace_seconds: float) -> None:
        def stop(client: docker.APIClient) -> None:
            try:
                client.stop(container_id, timeout=round(grace_seconds))
            except NotFound:
                return
            except APIError as error:
                raise container_failure(str(error.explanation or error)) from error

        # The engine answers only when the process is gone: the call's deadline has to be longer than the grace.
        await self._engine.call(stop, timeout_seconds=grace_seconds + 30)

    async def _inspect(self, name: str) -> dict[str, Any] | None:
        return await self._engine.call(lambda client: inspect(client, name))

    def _is_ours(self, found: dict[str, Any]) -> bool:
        return is_ours(found, self.labels)

    @asynccontextmanager
    async def _working_on(self, name: str) -> AsyncIterator[None]:
        self._busy[name] = self._busy.get(name, 0) + 1
        try:
            yield
        finally:
            self._busy[name] -= 1
            if not self._busy[name]:
                del self._busy[name]


def inspect(client: docker.APIClient, name: str) -> dict[str, Any] | None:
    """What the engine knows of a container, None where there is none."""
    try:
        found: dict[str, Any] = client.inspect_container(name)
    except NotFound:
        return None
    return found


def is_ours(found: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether an inspected container carries all of `labels`."""
    has = found["Config"].get("Labels") or {}
    return all(has.get(key) == value for key, value in labels.items())


def time_of(text: str | None) -> datetime | None:
    """The engine's RFC 3339 time with nanoseconds as an aware datetime; None for its zero time."""
    if not text or text.startswith("0001"):
        return None
    head, _, rest = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{(rest + '000000')[:6]}+00:00")


def _start(client: docker.APIClient, request: StartContainer, fleet_id: str) -> StartedContainer:
    container_id, has_run = _find_or_create(client, request, fleet_id)
    if not has_run:
        try:
            client.start(container_id)
        except APIError as error:
            _remove(client, container_id)
            raise container_failure(str(error.explanation or error), status=error.status_code) from error
    found = inspect(client, container_id)
    if found is None:  # A short command: it has exited, its exit is known, and its container is removed by now.
        return StartedContainer(container_id=container_id, started_at=datetime.now(UTC))
    return StartedContainer(
        container_id=container_id, started_at=time_of(found["State"].get("StartedAt")), ports=_ports_of(found)
    )


def _find_or_create(client: docker.APIClient, request: StartContainer, fleet_id: str) -> tuple[str, bool]:
    """The container's id, and whether it has run already: then it is not started again, for a command runs once."""
    arguments = creation(client, request, fleet_id=fleet_id)
    name = arguments["name"]
    try:
        return str(client.create_container(**arguments)["Id"]), False
    except APIError as error:
        text = str(error.explanation or error)
        if error.status_code != 409 or "already in use" not in text:
            raise container_failure(text, status=error.status_code) from error
        found = inspect(client, name)
        ours = {LABEL_FLEET: fleet_id, LABEL_SESSION: request.spec.session_id, LABEL_KERNEL: str(request.kernel)}
        if found is None or not is_ours(found, ours):
            raise ContainerError(
                f"a container named {name} exists on the agent and is not ours; it was left alone",
                reason=Reason.ENGINE_ERROR,
                retryable=False,
            ) from error
        return str(found["Id"]), found["State"].get("Status") not in ("created", "running")


def _remove(client: docker.APIClient, container_id: str) -> None:
    try:
        client.remove_container(container_id, v=True, force=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:
            raise container_failure(str(error.explanation or error)) from error


def _ports_of(found: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    published = (found.get("NetworkSettings") or {}).get("Ports") or {}
    return {
        port: tuple(sorted({int(binding["HostPort"]) for binding in bindings}))
        for port, bindings in published.items()
        if bindings
    }
