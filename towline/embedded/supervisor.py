"""Runs a stack: starts it in order, restarts what dies, stops it in reverse order, and leaves no process behind."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from towline.embedded.children import Child, roll
from towline.embedded.directory import ProcessRecord
from towline.embedded.parts import Part, PartFailedError, Stage, Step
from towline.errors import TowlineError

_ASK_SECONDS: Final = 0.05
_ROLL_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """Wait before a dead part's start: doubling from the first to the most, and the first again after a steady run."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0
    steady_seconds: float = 60.0

    def delay_seconds(self, deaths: int) -> float:
        """The wait after the n-th death in a row (n from 1)."""
        return min(self.most_seconds, self.first_seconds * 2.0 ** min(deaths - 1, 30))


class Supervisor:
    """One stack, in an event loop of the main thread: children are bound to the thread that starts them.

    `directory` holds the logs and the record of processes; `say` shows a line to the person in front of the terminal.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        directory: Path,
        say: Callable[[str], None],
        restarts: RestartPolicy | None = None,
    ) -> None:
        self._stages = stages
        self._logs = directory / "logs"
        self._record = ProcessRecord(directory / "processes.json")
        self._say = say
        self._restarts = restarts or RestartPolicy()
        self._children: dict[str, Child] = {}

    def end_leftovers(self) -> None:
        """End what a former stack in this directory, that was killed, has left running."""
        for name in self._record.end_leftovers():
            self._tell(f"ended {name}, left running by a former stack")

    async def run(self, stop: asyncio.Event, on_up: Callable[[], None]) -> None:
        """Start everything, call `on_up`, keep it running until `stop` is set, and stop it.

        Raises `PartFailedError` when a part dies, or a step fails, before all is up; everything is stopped then, too.
        """
        try:
            if await _unless(stop, self._start_all()):
                on_up()
                await _unless(stop, self._keep_all())
        finally:
            await self._stop_all()

    async def _start_all(self) -> None:
        for stage in self._stages:
            await _together(*(self._begin(item) for item in stage))

    async def _begin(self, item: Part | Step) -> None:
        match item:
            case Part():
                await self._bring_up(item)
            case Step():
                self._tell(f"{item.name} …")
                try:
                    await item.run()
                except Exception as error:
                    raise PartFailedError(item.name, f"failed: {error}") from error

    async def _bring_up(self, part: Part) -> None:
        self._tell(f"{part.name} …")
        try:
            command = await asyncio.to_thread(part.prepare)
        except (TowlineError, OSError) as error:
            raise PartFailedError(part.name, f"could not be prepared: {error}") from error
        child = Child.start(command, self._logs / f"{part.name}.log")
        self._children[part.name] = child
        self._record.add(part.name, child.pid, command.death_signal)
        await self._until_ready(part, child)

    async def _until_ready(self, part: Part, child: Child) -> None:
        try:
            async with asyncio.timeout(part.ready_seconds):
                while not await part.is_ready():
                    _refuse_dead(part, child)
                    await asyncio.sleep(_ASK_SECONDS)
        except TimeoutError:
            reason = f"is not ready after {part.ready_seconds:g} s; the end of {child.log}:\n{child.last_words()}"
            raise PartFailedError(part.name, reason) from None
        # After a yes, too: somebody else may have answered in the place of a child that is dead.
        _refuse_dead(part, child)

    async def _keep_all(self) -> None:
        parts = (item for stage in self._stages for item in stage if isinstance(item, Part))
        await _together(self._roll_logs(), *(self._keep(part) for part in parts))

    async def _keep(self, part: Part) -> None:
        deaths = 0
        while True:
            since = time.monotonic()
            await self._children[part.name].exited()
            child = self._children[part.name]
            child.kill()  # What it started must not stay, or would meet the next one.
            deaths = 1 if time.monotonic() - since > self._restarts.steady_seconds else deaths + 1
            delay = self._restarts.delay_seconds(deaths)
            self._tell(f"{part.name} {_died(child, lines=3)}\nstarting {part.name} again in {delay:g} s")
            await asyncio.sleep(delay)
            try:
                await self._bring_up(part)
            except PartFailedError as error:
                self._tell(error.message)
                self._children[part.name].kill()
            else:
                self._tell(f"{part.name} is up again")

    def _tell(self, line: str) -> None:
        # The terminal may be gone; the stack has to be kept, and stopped, all the same.
        with contextlib.suppress(OSError):
            self._say(line)

    async def _roll_logs(self) -> None:
        while True:
            await asyncio.sleep(_ROLL_SECONDS)
            for child in self._children.values():
                await asyncio.to_thread(roll, child.log)

    async def _stop_all(self) -> None:
        for stage in reversed(self._stages):
            names = [item.name for item in stage if item.name in self._children]
            await asyncio.gather(*(self._stop(name) for name in names))

    async def _stop(self, name: str) -> None:
        self._tell(f"stopping {name} …")
        await self._children.pop(name).stop()
        self._record.remove(name)


def _refuse_dead(part: Part, child: Child) -> None:
    if child.returncode is not None:
        raise PartFailedError(part.name, _died(child))


def _died(child: Child, lines: int = 12) -> str:
    code = child.returncode
    end = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return f"{end}; the end of {child.log}:\n{child.last_words(lines)}"


async def _together(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all at once. The first failure cancels the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _unless(stop: asyncio.Event, coroutine: Coroutine[Any, Any, None]) -> bool:
    """Run it, and cancel it when `stop` is set. Returns whether it came to its end."""
    work, stopped = asyncio.create_task(coroutine), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    return not work.cancelled()
