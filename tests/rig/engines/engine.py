"""A real Docker Engine of our own: its own data, run directory, socket and identity; nothing left behind."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import docker
import httpx

from tests.rig.engines.remains import kill_with_descendants, processes_naming, unmount_below
from tests.rig.eventually import eventually_sync
from towline.embedded.children import Child, Command, ProcessIdentity

_READY_SECONDS: Final = 60.0
_GONE_SECONDS: Final = 20.0
_CALL_SECONDS: Final = 10


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What may differ between engines. `data_tmpfs_mb` puts the data on a tmpfs of that size (MiB), to run out of space."""

    max_concurrent_downloads: int = 3
    live_restore: bool = False
    data_tmpfs_mb: int | None = None


@dataclass(frozen=True, kw_only=True)
class EnginePaths:
    """`data` may be anywhere; `run` is short, because socket paths end at 108 characters."""

    data: Path
    run: Path

    @property
    def socket(self) -> Path:
        """Of the API."""
        return self.run / "d.sock"

    @property
    def pid_of_containerd(self) -> Path:
        """The file that dockerd trusts after a restart: while that process lives, a new dockerd waits for it, and gives up."""
        return self.run / "x" / "containerd" / "containerd.pid"


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """A kind of engine: `argv` runs dockerd on a config file, whose settings are ours and `features`."""

    name: str
    argv: Callable[[EnginePaths, Path], tuple[str, ...]]
    features: dict[str, bool]


class Engine:
    """An engine, from `start` to `stop`. `kill` and `terminate` end the daemon alone; `start` begins it anew on the same data.

    A context manager: it starts on entry, and on exit stops and removes what the engine made: containers, processes, mounts, data.
    """

    def __init__(self, root: Path, flavour: Flavour, options: EngineOptions) -> None:
        self.paths: Final = EnginePaths(data=root / "data", run=Path(f"/tmp/tl-{secrets.token_hex(4)}"))
        self.flavour: Final = flavour
        self._options: Final = options
        self._log: Final = root / "dockerd.log"
        self._child: Child | None = None
        self._clients: Final[list[docker.DockerClient]] = []

    @property
    def socket(self) -> Path:
        """The path of the API's socket."""
        return self.paths.socket

    @property
    def url(self) -> str:
        """`unix://…`, as the Docker SDK takes it."""
        return f"unix://{self.paths.socket}"

    @property
    def pid(self) -> int:
        """Of dockerd."""
        return self._running().pid

    def client(self, *, timeout_seconds: int = 60) -> docker.DockerClient:
        """A new SDK client, closed with the engine at the latest."""
        client = docker.DockerClient(base_url=self.url, timeout=timeout_seconds)
        self._clients.append(client)
        return client

    def start(self) -> None:
        """Start the daemon and wait until it answers. Raises `RuntimeError` with its last words when it ends instead."""
        self._await_containerd_gone()
        self._make_directories()
        config = self.paths.run / "daemon.json"
        config.write_text(json.dumps(self._config()))
        command = Command(
            name=self.flavour.name,
            argv=self.flavour.argv(self.paths, config),
            cwd=self.paths.run,
            death_signal=signal.SIGTERM,
            grace_seconds=_GONE_SECONDS,
        )
        self._child = Child.start(command, self._log)
        eventually_sync(self._answers, timeout=_READY_SECONDS)

    def kill(self) -> None:
        """SIGKILL, as a crash; its containerd dies of it soon, running containers do not."""
        self._running().kill()
        self._child = None

    def terminate(self) -> None:
        """SIGTERM, and wait for the end; containers are stopped by dockerd itself, unless it has live restore."""
        self._running().stop_and_wait()
        self._child = None

    def freeze(self) -> None:
        """SIGSTOP: connections are accepted, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End everything and remove everything. Works in every state, also twice."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
            self._remove_containers()
            self._child.stop_and_wait()
            self._child = None
        for client in self._clients:
            client.close()
        self._clients.clear()
        kill_with_descendants(processes_naming(f"{self.paths.run}/"))
        for directory in (self.paths.run, self.paths.data):
            unmount_below(directory)
            shutil.rmtree(directory, ignore_errors=True)

    def last_words(self, lines: int = 20) -> str:
        """The end of the daemon's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:]) if self._log.exists() else ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError("the engine does not run")
        return self._child

    def _make_directories(self) -> None:
        (self.paths.run / "x").mkdir(parents=True, exist_ok=True)
        if self.paths.data.is_dir():
            return
        self.paths.data.mkdir(parents=True)
        if self._options.data_tmpfs_mb is not None:
            size = f"size={self._options.data_tmpfs_mb}m"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.paths.data)], check=True)

    def _config(self) -> dict[str, object]:
        run = self.paths.run
        return {
            "data-root": str(self.paths.data),
            "exec-root": str(run / "x"),
            "pidfile": str(run / "d.pid"),
            "hosts": [f"unix://{self.paths.socket}"],
            # By default all engines of a machine share one file, and so the identity in `docker info`.
            "deprecated-key-path": str(run / "key.json"),
            "iptables": False,
            "ip6tables": False,
            "bridge": "none",
            "insecure-registries": ["127.0.0.0/8"],
            "max-concurrent-downloads": self._options.max_concurrent_downloads,
            "live-restore": self._options.live_restore,
            **({"features": self.flavour.features} if self.flavour.features else {}),
        }

    def _await_containerd_gone(self) -> None:
        if not self.paths.pid_of_containerd.exists():
            return
        process = ProcessIdentity.of(int(self.paths.pid_of_containerd.read_text()))
        if process is not None:
            eventually_sync(lambda: not process.is_alive, timeout=_GONE_SECONDS)
        # A dead process that nobody has reaped would still count as alive with dockerd.
        self.paths.pid_of_containerd.unlink()

    def _answers(self) -> None:
        code = self._running().returncode
        if code is not None:
            raise RuntimeError(f"{self.flavour.name} ended with {code}:\n{self.last_words()}")
        try:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), timeout=5) as http:
                status = http.get("http://engine/info").status_code
        except httpx.TransportError as error:
            raise AssertionError(f"no answer yet: {error}\n{self.last_words()}") from error
        assert status == httpx.codes.OK, self.last_words()

    def _remove_containers(self) -> None:
        # What a hung or dying daemon does not remove here is killed by the sweep that follows.
        with contextlib.suppress(docker.errors.DockerException, OSError):
            client = self.client(timeout_seconds=_CALL_SECONDS)
            for container in client.api.containers(all=True):
                with contextlib.suppress(docker.errors.APIError):
                    client.api.remove_container(container["Id"], force=True, v=True)
