"""An agent's containers without an engine, held to the same promises by the same tests (tests/contract/test_containers.py)."""

import asyncio
import contextlib
import itertools
import shlex
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from towline.domain.containers import (
    ContainerExit,
    EndContainer,
    LogPage,
    LogTail,
    ReadLogs,
    StartContainer,
    StartedContainer,
)
from towline.domain.ids import container_name
from towline.domain.lifecycle import Reason
from towline.errors import ContainerError

OnExit = Callable[[str, ContainerExit], Awaitable[bool]]

_TAIL_BYTES = 1 << 20
_NEWS_SECONDS = 1.0
_SIGKILLED, _SIGTERMED = 137, 143


async def _nobody(_: str, __: ContainerExit) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class FakeImage:
    """What an image has: files by absolute path, and its own command."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    command: tuple[str, ...] | None = None


@dataclass(kw_only=True)
class FakeContainer:
    """One container. `request` is None for one that is not ours."""

    container_id: str
    request: StartContainer | None = None
    image: FakeImage = field(default_factory=FakeImage)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    finished_at: datetime | None = None
    exit_code: int | None = None
    log: bytearray = field(default_factory=bytearray)
    traps_term: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        return self.process is not None and self.exit_code is None

    def write(self, data: bytes) -> None:
        tty = self.request is not None and self.request.spec.tty
        self.log += data.replace(b"\n", b"\r\n") if tty else data
        self.news.set()

    def exited(self, kernel: int) -> ContainerExit:
        tail = bytes(self.log[-_TAIL_BYTES:])
        return ContainerExit(
            kernel=kernel,
            container_id=self.container_id,
            exit_code=self.exit_code,
            finished_at=self.finished_at,
            log=LogTail.of(tail, total_bytes=len(self.log)),
        )


class FakeEngineContainers:
    """Satisfies `activities.containers.Containers`, and tells exits as `ExitWatcher` does.

    Commands are `true`, `false`, `echo`, `cat`, `env`, `sleep`, and `sh -c` with a script of these, `exit` and
    `trap '' TERM`, separated by `;`.
    """

    def __init__(self, *, images: Mapping[str, FakeImage] | None = None, on_exit: OnExit = _nobody) -> None:
        self.containers: dict[str, FakeContainer] = {}
        self._images = images
        self._on_exit = on_exit
        self._ids = itertools.count(1)
        self._background: set[asyncio.Task[None]] = set()
        self._ending: set[str] = set()

    async def start(self, request: StartContainer) -> StartedContainer:
        name = container_name(request.spec.session_id, request.kernel)
        await asyncio.sleep(0)
        found = self.containers.get(name)
        if found is not None and found.request is None:
            raise _refused(Reason.ENGINE_ERROR, f"a container named {name} exists and is not ours")
        if found is None:
            found = self._create(request)
            self.containers[name] = found
            found.process = asyncio.create_task(self._run(name, found, _command_of(found)))
        return StartedContainer(container_id=found.container_id, started_at=found.started_at)

    async def end(self, request: EndContainer) -> ContainerExit:
        name = container_name(request.session_id, request.kernel)
        found = self.containers.get(name)
        if found is None or found.request is None:
            return ContainerExit(kernel=request.kernel, message="there was no such container")
        self._ending.add(name)
        if found.runs and found.traps_term and found.process:
            await asyncio.wait({found.process}, timeout=request.grace_seconds)
        if found.runs:
            self._finish(found, _SIGKILLED if found.traps_term or request.grace_seconds == 0 else _SIGTERMED)
        self.containers.pop(name, None)
        self._ending.discard(name)
        return found.exited(request.kernel)

    async def read_logs(self, request: ReadLogs) -> LogPage:
        found = self.containers.get(container_name(request.session_id, request.kernel))
        if found is None or found.request is None:
            return LogPage(packed="", next_offset=request.offset, ended=True, found=False)
        if request.offset >= len(found.log) and found.runs:
            found.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(found.news.wait(), _NEWS_SECONDS)
        data = bytes(found.log[request.offset : request.offset + request.limit_bytes])
        next_offset = request.offset + len(data)
        packed = LogTail.of(data, total_bytes=len(data)).packed
        return LogPage(packed=packed, next_offset=next_offset, ended=not found.runs and next_offset >= len(found.log))

    def close(self) -> None:
        """End all processes; nobody is told."""
        for task in (*self._background, *(one.process for one in self.containers.values() if one.process)):
            task.cancel()

    def remove_from_outside(self, name: str) -> None:
        """As `docker rm -f` does."""
        found = self.containers.pop(name)
        if found.runs:
            self._finish(found, _SIGKILLED)
            self._in_background(self._tell(name, found))

    def put_foreign(self, name: str) -> None:
        """A container of somebody else."""
        self.containers[name] = FakeContainer(container_id=f"foreign{next(self._ids)}")

    def _create(self, request: StartContainer) -> FakeContainer:
        image = FakeImage() if self._images is None else self._images.get(request.image_ref)
        if image is None:
            raise _refused(Reason.IMAGE_VANISHED, f"No such image: {request.image_ref}")
        found = FakeContainer(container_id=f"c{next(self._ids)}", request=request, image=image)
        command = _command_of(found)
        if not command:
            raise _refused(Reason.NO_COMMAND, "No command specified")
        if command[0] not in _PROGRAMS:
            raise _refused(Reason.COMMAND_NOT_FOUND, f'exec: "{command[0]}": executable file not found')
        return found

    async def _run(self, name: str, container: FakeContainer, command: tuple[str, ...]) -> None:
        script = command[2] if command[0] == "sh" else shlex.join(command)
        code = 0
        for step in script.split(";"):
            code = await _step(container, shlex.split(step), code)
            if step.split()[:1] == ["exit"]:
                break
        if container.exit_code is None:
            self._finish(container, code)
        await self._tell(name, container)

    def _finish(self, container: FakeContainer, code: int) -> None:
        container.exit_code = code
        container.finished_at = datetime.now(UTC)
        container.news.set()
        if container.process is not None and container.process is not asyncio.current_task():
            container.process.cancel()

    async def _tell(self, name: str, container: FakeContainer) -> None:
        request = container.request
        if request is None or name in self._ending:
            return
        if await self._on_exit(request.spec.session_id, container.exited(request.kernel)):
            self.containers.pop(name, None)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


_PROGRAMS = frozenset({"true", "false", "echo", "cat", "env", "sleep", "sh"})


def _command_of(container: FakeContainer) -> tuple[str, ...]:
    assert container.request is not None
    spec = container.request.spec
    return (spec.entrypoint or ()) + (spec.command or container.image.command or ())


async def _step(container: FakeContainer, words: list[str], code: int) -> int:
    match words:
        case ["sleep", seconds]:
            await asyncio.sleep(float(seconds))
        case ["echo", *said]:
            container.write(f"{' '.join(said)}\n".encode())
        case ["cat", path]:
            container.write(container.image.files[path])
        case ["env"]:
            spec = container.request.spec if container.request else None
            container.write("".join(f"{k}={v}\n" for k, v in (spec.env if spec else {}).items()).encode())
        case ["trap", "", "TERM"]:
            container.traps_term = True
        case ["exit", given]:
            return int(given)
        case ["false"]:
            return 1
        case _:
            return code
    return 0


def _refused(reason: Reason, text: str) -> ContainerError:
    return ContainerError(text, reason=reason, retryable=False)
