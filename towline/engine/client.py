"""Reaching one Docker Engine: short calls with a deadline each, off the event loop."""

import asyncio
import math
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import docker
import requests
from docker.errors import DockerException

from towline.domain.lifecycle import Reason
from towline.domain.pulls.stores import StoreKind
from towline.errors import EngineError

T = TypeVar("T")

CALL_TIMEOUT_SECONDS: Final = 20.0
PROBE_TIMEOUT_SECONDS: Final = 3.0
_THREADS: Final = 48
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7", "i686": "386"}
"""The kernel's names for machines, and those that images use."""


class Engine:
    """One engine at `url` (`unix:///var/run/docker.sock`, `tcp://host:2375`). Safe to use from one event loop.

    The SDK's client is not thread-safe, so each thread has its own. Its socket time-out ends the thread of a call to an
    engine that does not answer: hung calls do not pile up.
    """

    def __init__(self, url: str, *, call_timeout_seconds: float = CALL_TIMEOUT_SECONDS) -> None:
        self.url: Final = url
        self.call_timeout_seconds: Final = call_timeout_seconds
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="engine")
        self._local = threading.local()
        self._info: dict[str, Any] | None = None

    async def call(self, ask: Callable[[docker.APIClient], T], *, timeout_seconds: float | None = None) -> T:
        """Run `ask` with a client in a thread, under a deadline (seconds; the default is the engine's).

        Raises what `ask` raises; `EngineError` with `engine-unavailable` when the engine cannot be reached, and with
        `engine-unresponsive` when it does not answer in time.
        """
        deadline = timeout_seconds or self.call_timeout_seconds
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, ask, deadline)

    def _run(self, ask: Callable[[docker.APIClient], T], deadline: float) -> T:
        try:
            client = self._client(deadline)
            client.timeout = math.ceil(deadline)
            return ask(client)
        except (requests.exceptions.ReadTimeout, TimeoutError) as error:
            raise unresponsive(self.url, deadline) from error
        except requests.exceptions.RequestException as error:
            self._forget()
            if "timed out" in str(error).lower():
                raise unresponsive(self.url, deadline) from error
            raise unavailable(self.url, error) from error

    def _client(self, deadline: float) -> docker.APIClient:
        client: docker.APIClient | None = getattr(self._local, "client", None)
        if client is None:
            try:
                client = docker.APIClient(base_url=self.url, version="auto", timeout=math.ceil(deadline))
            except DockerException as error:
                # The SDK asks for the API's version first, and wraps whatever goes wrong with that.
                if "timed out" in str(error).lower():
                    raise unresponsive(self.url, deadline) from error
                raise unavailable(self.url, error) from error
            self._local.client = client
        return client

    def _forget(self) -> None:
        """The engine may come back as another one: newer, or with the other store."""
        self._info = None
        client, self._local.client = self._local.client, None
        client.close()

    async def info(self) -> dict[str, Any]:
        """What `docker info` says; asked once, and anew after the engine was away."""
        if self._info is None:
            self._info = await self.call(lambda client: client.info())
        return self._info

    async def store_kind(self) -> StoreKind:
        """The kind of the engine's image store."""
        return store_kind_of(await self.info())

    async def api_version(self) -> str:
        """The Docker API's version that client and engine agreed on."""
        return await self.call(lambda client: str(client.api_version))

    async def free_bytes(self) -> int | None:
        """Free bytes where the engine keeps its images; None where that is not on this machine."""
        root = Path((await self.info()).get("DockerRootDir") or "/nonexistent")
        if not self.url.startswith("unix://") or not await asyncio.to_thread(root.is_dir):
            return None
        return (await asyncio.to_thread(shutil.disk_usage, root)).free

    async def platform(self) -> str:
        """The engine's own platform, as `os/arch`."""
        info = await self.info()
        machine = str(info.get("Architecture", ""))
        return f"{info.get('OSType', 'linux')}/{_ARCHITECTURES.get(machine, machine)}"

    async def hub_mirrors(self) -> tuple[str, ...]:
        """Base URLs of the registries that the engine asks for Docker Hub's images before Docker Hub itself."""
        registries = (await self.info()).get("RegistryConfig") or {}
        return tuple(registries.get("Mirrors") or ())

    async def probe(self) -> None:
        """Ask what a hung engine does not answer (its `_ping` would answer all the same). Raises `EngineError`."""
        await self.call(lambda client: client.networks(), timeout_seconds=PROBE_TIMEOUT_SECONDS)

    async def responds(self) -> bool:
        """Whether the engine answers a probe."""
        try:
            await self.probe()
        except EngineError:
            return False
        return True

    def close(self) -> None:
        """Give back the threads; calls under way end with their own deadlines."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def store_kind_of(info: dict[str, Any]) -> StoreKind:
    """The store's kind, from `docker info`."""
    rows = info.get("DriverStatus") or []
    if any(list(row) == ["driver-type", "io.containerd.snapshotter.v1"] for row in rows):
        return StoreKind.CONTAINERD
    if info.get("BuildahVersion") or any("Backing Filesystem" in row and "podman" in str(row) for row in rows):
        return StoreKind.PODMAN
    return StoreKind.CLASSIC


def unavailable(url: str, error: BaseException) -> EngineError:
    """The engine cannot be reached at all."""
    return EngineError(
        f"the Docker Engine at {url} cannot be reached ({error}); is it running?",
        reason=Reason.ENGINE_UNAVAILABLE,
        retryable=True,
    )


def unresponsive(url: str, seconds: float) -> EngineError:
    """The engine was reached and did not answer in time."""
    return EngineError(
        f"the Docker Engine at {url} did not answer within {seconds:g} s; if `docker info` hangs there too, restart it",
        reason=Reason.ENGINE_UNRESPONSIVE,
        retryable=True,
    )
