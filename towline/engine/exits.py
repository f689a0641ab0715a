"""Noticing that containers exit: the engine's event stream, with a periodic look behind it.

An exit is told at least once, and the container is removed only when the telling was accepted for good: what crashes in
between is found again by the next look.
"""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import docker
import requests
from docker.errors import APIError, DockerException
from urllib3.exceptions import HTTPError

from towline.domain.containers import ContainerExit
from towline.domain.ids import LABEL_KERNEL, LABEL_SESSION
from towline.engine.client import Engine
from towline.engine.connection import OwnedSockets, abortable_client
from towline.engine.containers import EngineContainers, inspect, is_ours
from towline.errors import EngineError

_log = logging.getLogger(__name__)

OnExit = Callable[[str, ContainerExit], Awaitable[bool]]
"""Told a session's id and how its container ended. True: accepted for good, or of no interest to anybody any more."""

_LOOK_EVERY_SECONDS: Final = 30.0
_RECONNECT_SECONDS: Final = 1.0
_BUSY_SECONDS: Final = 0.2


class ExitWatcher:
    """Watches one engine for one agent. Only containers with this agent's labels are looked at."""

    def __init__(self, engine: Engine, containers: EngineContainers, on_exit: OnExit) -> None:
        self._engine = engine
        self._containers = containers
        self._on_exit = on_exit
        self._handling: dict[str, asyncio.Task[None]] = {}
        self._look_now = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        events = asyncio.create_task(self._follow_events())
        try:
            while True:
                await self._look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._look_now.wait(), _LOOK_EVERY_SECONDS)
                self._look_now.clear()
        finally:
            events.cancel()
            for task in self._handling.values():
                task.cancel()
            await asyncio.gather(events, *self._handling.values(), return_exceptions=True)

    async def _look(self) -> None:
        filters = {
            "label": [f"{key}={value}" for key, value in self._containers.labels.items()],
            "status": ["exited", "dead"],
        }
        try:
            found = await self._engine.call(lambda client: client.containers(all=True, filters=filters))
        except (EngineError, DockerException) as error:
            _log.warning("cannot look for exited containers: %s", error)
            return
        for container in found:
            self._begin(container["Id"])

    async def _follow_events(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            ended = asyncio.Event()
            try:
                stream = _EventStream(self._engine.url, await self._engine.api_version(), self._containers.labels)
            except (EngineError, DockerException) as error:
                _log.warning("cannot follow the engine's events: %s", error)
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            stream.start(
                lambda container_id: loop.call_soon_threadsafe(self._begin, container_id),
                functools.partial(loop.call_soon_threadsafe, ended.set),
            )
            try:
                # What exited while nobody listened is found by a look, now that somebody does.
                self._look_now.set()
                await ended.wait()
            finally:
                stream.abort()
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _begin(self, container_id: str) -> None:
        if container_id in self._handling:
            return
        task = asyncio.create_task(self._handle(container_id))
        self._handling[container_id] = task
        task.add_done_callback(lambda _: self._handling.pop(container_id, None))

    async def _handle(self, container_id: str) -> None:
        try:
            await self._tell(container_id)
        except (EngineError, DockerException, requests.RequestException) as error:
            # The next look finds the container again.
            _log.warning("the exit of %s could not be dealt with yet: %s", container_id[:12], error)

    async def _tell(self, container_id: str) -> None:
        found = await self._settled(container_id)
        if found is None:
            return
        labels = found["Config"]["Labels"]
        exit_ = await self._containers.describe_exit(container_id, int(labels[LABEL_KERNEL]))
        if exit_.exit_code is not None and await self._on_exit(labels[LABEL_SESSION], exit_):
            await self._containers.remove(container_id)

    async def _settled(self, container_id: str) -> dict[str, Any] | None:
        """The container, once nobody starts or ends it; None if it is not ours, runs, or is gone."""
        while True:
            found = await self._engine.call(lambda client: inspect(client, container_id))
            if found is None or not is_ours(found, self._containers.labels) or found["State"].get("Running"):
                return None
            if not self._containers.is_busy(found["Name"].lstrip("/")):
                return found
            await asyncio.sleep(_BUSY_SECONDS)


class _EventStream:
    """The engine's `die` events for our labels, read in a thread of its own."""

    def __init__(self, url: str, api_version: str, labels: dict[str, str]) -> None:
        self._client: docker.APIClient
        self._sockets: OwnedSockets
        self._client, self._sockets = abortable_client(url, api_version)
        self._filters = {"type": "container", "event": "die", "label": [f"{k}={v}" for k, v in labels.items()]}

    def start(self, on_die: Callable[[str], object], on_end: Callable[[], object]) -> None:
        def read() -> None:
            try:
                for event in self._client.events(filters=self._filters, decode=True):
                    on_die(event["id"])
            except (APIError, DockerException, requests.RequestException, HTTPError, OSError, ValueError) as error:
                _log.info("the engine's event stream ended: %s", error)
            finally:
                self._client.close()
                with contextlib.suppress(RuntimeError):  # The process is stopping, and its loop with it.
                    on_end()

        threading.Thread(target=read, name="events", daemon=True).start()

    def abort(self) -> None:
        self._sockets.abort()
