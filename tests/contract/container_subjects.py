"""What the contract of an agent's containers is tried on: the fake, and the real thing on an engine of each store."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import docker

from activities.containers import Containers
from tests.fakes.engine_containers import FakeEngineContainers, FakeImage
from tests.rig.engines import Engine as RigEngine
from tests.rig.eventually import eventually
from tests.rig.images import ImageRecipe, Layer, push
from tests.rig.pulling import pull
from tests.rig.registry import RegistryProcess
from towline.domain.containers import ContainerExit, EndContainer, LogTail, ReadLogs, StartContainer, StartedContainer
from towline.domain.ids import container_name, new_id, new_session_id
from towline.domain.sessions import Network, Resources, SessionSpec
from towline.engine import container_calls
from towline.engine.client import Engine
from towline.engine.containers import EngineContainers
from towline.engine.exits import ExitWatcher, Missing

AGENT_ID = "a1"
TEXT = "é漢🙂".encode() * 25_000
"""Without a newline, and longer than what an engine takes for one entry of a log."""

RANDOM_BYTES = random.Random(7).randbytes(1_000_000)
IMAGE_FILES = {"text": TEXT, "random": RANDOM_BYTES}
"""In the root of the image."""


@dataclass(kw_only=True)
class Ears:
    """Hears exits. `accepts`: whether what is told counts as accepted. `failures`: raised by the next tellings, in order."""

    accepts: bool = True
    failures: list[Exception] = field(default_factory=list)
    heard: list[tuple[str, ContainerExit]] = field(default_factory=list)

    async def on_exit(self, session_id: str, exit_: ContainerExit) -> bool:
        self.heard.append((session_id, exit_))
        if self.failures:
            raise self.failures.pop(0)
        return self.accepts

    def of(self, spec: SessionSpec) -> list[ContainerExit]:
        return [exit_ for session_id, exit_ in self.heard if session_id == spec.session_id]

    async def first(self, spec: SessionSpec, *, timeout: float = 15) -> ContainerExit:
        exit_: ContainerExit = await eventually(lambda: self.of(spec)[0], timeout=timeout)
        return exit_


class Host(Protocol):
    """The machine under the containers, as somebody else who works there sees it."""

    def names(self) -> set[str]: ...
    def remove(self, name: str) -> None: ...
    def put_foreign(self, name: str) -> None: ...


@dataclass(kw_only=True)
class Subject:
    """Containers to try, and what is around them. `image` has busybox and `IMAGE_FILES`; `bare` has no command, too."""

    containers: Containers
    ears: Ears
    host: Host
    image: str
    bare: str

    def spec(self, *command: str, **changes: object) -> SessionSpec:
        plain: dict[str, object] = {
            "session_id": new_session_id(),
            "owner_id": "usr-1",
            "owner": "ann",
            "image": self.image,
            "command": command or None,
            "network": Network.NONE,
            "resources": Resources(cpu=1.0, memory_bytes=64 << 20),
        }
        return SessionSpec(**{**plain, **changes})  # type: ignore[arg-type]  # the fields are the test's own

    async def start(self, spec: SessionSpec, *, image: str | None = None, kernel: int = 0) -> StartedContainer:
        request = StartContainer(spec=spec, kernel=kernel, agent_id=AGENT_ID, image_ref=image or self.image)
        return await self.containers.start(request)

    async def end(self, spec: SessionSpec, *, grace_seconds: float = 5.0) -> ContainerExit:
        request = EndContainer(session_id=spec.session_id, kernel=0, grace_seconds=grace_seconds)
        return await self.containers.end(request)

    async def log(self, spec: SessionSpec, *, limit_bytes: int = 256 * 1024) -> bytes:
        """The whole log of a container that ends by itself, page by page."""
        data, offset = b"", 0
        while True:
            request = ReadLogs(session_id=spec.session_id, kernel=0, offset=offset, limit_bytes=limit_bytes)
            page = await self.containers.read_logs(request)
            assert page.found
            data += LogTail(packed=page.packed).data()
            offset = page.next_offset
            if page.ended:
                return data

    async def wait_for_output(self, spec: SessionSpec) -> None:
        """The container has written something."""
        request = ReadLogs(session_id=spec.session_id, kernel=0)

        async def wrote() -> None:
            assert (await self.containers.read_logs(request)).next_offset > 0

        await eventually(wrote, timeout=10)

    def has(self, spec: SessionSpec) -> bool:
        return container_name(spec.session_id, 0) in self.host.names()


@asynccontextmanager
async def fake_subject() -> AsyncIterator[Subject]:
    files = {f"/{name}": content for name, content in IMAGE_FILES.items()}
    ears = Ears()
    containers = FakeEngineContainers(
        images={"image": FakeImage(files=files, command=("true",)), "bare": FakeImage()}, on_exit=ears.on_exit
    )
    try:
        yield Subject(containers=containers, ears=ears, host=_FakeHost(containers), image="image", bare="bare")
    finally:
        containers.close()


@dataclass(frozen=True, kw_only=True)
class Images:
    """References of the two images."""

    image: str
    bare: str


def push_images(registry: RegistryProcess) -> Images:
    layers = (Layer.busybox(files=IMAGE_FILES),)
    push(registry.host, "containers/image", "1", ImageRecipe(layers=layers, cmd=("true",)))
    push(registry.host, "containers/bare", "1", ImageRecipe(layers=layers))
    return Images(image=f"{registry.host}/containers/image:1", bare=f"{registry.host}/containers/bare:1")


@dataclass(kw_only=True)
class RealSubject(Subject):
    """The real thing. `engine` is how the containers reach it, `client` the test's own way."""

    containers: EngineContainers
    engine: Engine
    client: docker.APIClient

    @asynccontextmanager
    async def watching(
        self, *, look_every_seconds: float = 30.0, missing: Missing | None = None
    ) -> AsyncIterator[None]:
        """An exit watcher, for as long as the block lasts."""
        watcher = ExitWatcher(
            self.engine, self.containers, self.ears.on_exit, missing=missing, look_every_seconds=look_every_seconds
        )
        task = asyncio.create_task(watcher.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()


@asynccontextmanager
async def real_subject(
    rig: RigEngine,
    images: Images,
    *,
    url: str | None = None,
    watching: bool = True,
    call_timeout_seconds: float = 20.0,
    look_every_seconds: float = 30.0,
    starts_max: int = 3,
) -> AsyncIterator[RealSubject]:
    """`url`: reach the engine there, and not directly. Whatever is left after the test is removed."""
    for reference in (images.image, images.bare):
        pulled = await asyncio.to_thread(pull, rig.socket, reference)
        assert pulled.succeeded, pulled.error
    engine = Engine(url or rig.url, call_timeout_seconds=call_timeout_seconds)
    ears = Ears()
    containers = EngineContainers(engine=engine, agent_id=AGENT_ID, fleet_id=new_id("flt"), starts_max=starts_max)
    client = rig.client().api
    subject = RealSubject(
        containers=containers,
        ears=ears,
        host=_RealHost(client, images.image),
        image=images.image,
        bare=images.bare,
        engine=engine,
        client=client,
    )
    try:
        async with contextlib.AsyncExitStack() as stack:
            if watching:
                await stack.enter_async_context(subject.watching(look_every_seconds=look_every_seconds))
            yield subject
    finally:
        containers.close()
        engine.close()
        for container in client.containers(all=True):
            # A removal that a watcher had begun goes on after it: `remove` waits for its end.
            container_calls.remove(client, container["Id"])


class _FakeHost:
    def __init__(self, containers: FakeEngineContainers) -> None:
        self._containers = containers

    def names(self) -> set[str]:
        return set(self._containers.containers)

    def remove(self, name: str) -> None:
        self._containers.remove_from_outside(name)

    def put_foreign(self, name: str) -> None:
        self._containers.put_foreign(name)


class _RealHost:
    def __init__(self, client: docker.APIClient, image: str) -> None:
        self._client = client
        self._image = image

    def names(self) -> set[str]:
        return {name.lstrip("/") for found in self._client.containers(all=True) for name in found["Names"]}

    def remove(self, name: str) -> None:
        self._client.remove_container(name, force=True)

    def put_foreign(self, name: str) -> None:
        config = self._client.create_host_config(network_mode="none")
        created = self._client.create_container(self._image, ["sleep", "60"], name=name, host_config=config)
        self._client.start(created["Id"])
