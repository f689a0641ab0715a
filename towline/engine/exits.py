"""Noticing that containers exit: the engine's event stream, with a periodic look behind it.

An exit is told at least once, and the container is removed only when the telling was accepted for good: what crashes in
between is found again by the next look.
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from towline.domain.containers import ContainerExit
from towline.engine.client import Engine
from towline.engine.container_calls import State
from towline.engine.containers import EngineContainers
from towline.engine.events import Death, EventStream
from towline.errors import EngineError

_log = logging.getLogger(__name__)

OnExit = Callable[[str, ContainerExit], Awaitable[bool]]
"""Told a session's id and how its container ended. True: accepted for good, or of no interest to anybody any more. False, or
an exception: told again later."""

Missing = Callable[[Collection[tuple[str, int]]], Awaitable[Collection[tuple[str, int]]]]
"""Given the kernels (session id, index) that have a container here: those that are believed to run here and have none."""

LOOK_EVERY_SECONDS: Final = 30.0
_RECONNECT_SECONDS: Final = 0.5
_RECONNECT_SECONDS_MAX: Final = 10.0
_ABORT_SECONDS: Final = 2.0
_LOST: Final = "the container is gone, and nobody saw how it ended"
_TELLINGS_MAX: Final = 8
"""Each has a log's tail in memory, up to 1 MiB. While nobody listens, more would only wait there."""


class ExitWatcher:
    """Watches one engine for one agent. Only containers with this agent's labels are looked at.

    Containers that have not been started are left to `start` and `end`. With `missing`, a kernel whose container is missing
    for longer than the time between two looks is told as lost.
    """

    def __init__(
        self,
        engine: Engine,
        containers: EngineContainers,
        on_exit: OnExit,
        *,
        missing: Missing | None = None,
        look_every_seconds: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self._engine = engine
        self._containers = containers
        self._on_exit = on_exit
        self._missing = missing
        self._look_every_seconds = look_every_seconds
        self._missing_since: dict[tuple[str, int], float] = {}
        self._handling: dict[str, asyncio.Task[None]] = {}
        self._tellings = asyncio.Semaphore(_TELLINGS_MAX)
        self._look_now = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        events = asyncio.create_task(self._follow_events())
        try:
            while True:
                self._look_now.clear()
                await self._guarded("a look at the containers", self._look())
                await _wait(self._look_now, self._look_every_seconds)
        finally:
            tasks = (events, *self._handling.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        ours = await self._containers.list_ours()
        for one in ours:
            if one.state in (State.EXITED, State.DEAD):
                self._begin(Death(container_id=one.container_id, session_id=one.session_id, kernel=one.kernel))
        if self._missing is not None:
            await self._tell_lost(frozenset(await self._missing({(one.session_id, one.kernel) for one in ours})))

    async def _tell_lost(self, missing: frozenset[tuple[str, int]]) -> None:
        now = time.monotonic()
        self._missing_since = {kernel: self._missing_since.get(kernel, now) for kernel in missing}
        for (session_id, kernel), since in self._missing_since.items():
            if now - since >= self._look_every_seconds:
                await self._on_exit(session_id, ContainerExit(kernel=kernel, message=_LOST))

    async def _follow_events(self) -> None:
        wait_seconds = _RECONNECT_SECONDS
        while True:
            begin = time.monotonic()
            await self._guarded("following the engine's events", self._follow_one_stream())
            lasted = time.monotonic() - begin > _RECONNECT_SECONDS_MAX
            wait_seconds = _RECONNECT_SECONDS if lasted else min(2 * wait_seconds, _RECONNECT_SECONDS_MAX)
            await asyncio.sleep(wait_seconds)

    async def _follow_one_stream(self) -> None:
        loop = asyncio.get_running_loop()
        stream = EventStream(self._engine.url, await self._engine.api_version(), self._containers.labels)
        ended = asyncio.Event()
        stream.start(
            lambda death: loop.call_soon_threadsafe(self._begin, death),
            functools.partial(loop.call_soon_threadsafe, ended.set),
        )
        try:
            # What exited while nobody listened, perhaps because the engine was away, is found by a look.
            self._look_now.set()
            await ended.wait()
        finally:
            stream.abort()
            await _wait(ended, _ABORT_SECONDS)

    def _begin(self, death: Death) -> None:
        if death.container_id in self._handling:
            return
        task = asyncio.create_task(self._guarded(f"the exit of {death.container_id[:12]}", self._handle(death)))
        self._handling[death.container_id] = task
        task.add_done_callback(lambda _: self._handling.pop(death.container_id, None))

    async def _handle(self, death: Death) -> None:
        async with self._tellings:
            # While the container is being started or ended, its end is the business of who does that.
            async with self._containers.turn(death.session_id, death.kernel):
                exit_ = await self._describe(death)
            if exit_ is None or not await self._on_exit(death.session_id, exit_):
                return
        await self._containers.wait_until_read(death.container_id)
        await self._containers.remove(death.container_id)

    async def _describe(self, death: Death) -> ContainerExit | None:
        """How it ended; None if it runs or has never run, or if it is we who have removed it."""
        found = await self._containers.inspect(death.container_id)
        if found is not None:
            if found["State"].get("Running"):
                return None
            exit_ = await self._containers.exit_of(found, death.kernel)
            return exit_ if exit_.exit_code is not None else None
        if death.exit_code is None or self._containers.has_removed(death.container_id):
            return None
        return ContainerExit(
            kernel=death.kernel,
            container_id=death.container_id,
            exit_code=death.exit_code,
            finished_at=death.at,
            message="the container was removed from outside as soon as it had ended; its log is lost",
        )

    async def _guarded(self, what: str, work: Awaitable[None]) -> None:
        """A failure ends neither the watch nor what it has not to do with: the next look tries again."""
        try:
            await work
        except EngineError as error:
            _log.warning("%s: %s; tried again later", what, error)
        except Exception:
            _log.exception("%s failed in a way that it should not; tried again later", what)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    # Not `wait_for`: in Python 3.11 that loses a cancellation that comes at the same time as the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
