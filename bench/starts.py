"""Starting one container: through Towline, and by the bare engine, in turn."""

import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

import docker
from httpx_sse import connect_sse

from tests.acceptance.stack import RunningStack

MEMORY_BYTES = 16 << 20
CPU = 1.0
"""A smaller share would throttle the container while it is still being started, and measure that."""
NETWORK = "none"
COMMAND = ("sleep", "300")


@dataclass(kw_only=True)
class Comparison:
    """Seconds of each run, ours and the peer's, taken in turn."""

    name: str
    peer: str
    ours_seconds: list[float] = field(default_factory=list)
    peer_seconds: list[float] = field(default_factory=list)

    @property
    def overhead_seconds(self) -> float:
        """Median against median."""
        return median(self.ours_seconds) - median(self.peer_seconds)

    def row(self) -> tuple[str, ...]:
        """Name, peer, runs, both medians in ms, difference in ms, ratio."""
        ours, peer = median(self.ours_seconds), median(self.peer_seconds)
        return (
            self.name,
            self.peer,
            str(len(self.ours_seconds)),
            f"{ours * 1000:.0f}",
            f"{peer * 1000:.0f}",
            f"{(ours - peer) * 1000:+.0f}",
            f"{ours / peer:.2f}",
        )


class Starter:
    """Starts the same container both ways, and removes it again."""

    def __init__(self, stack: RunningStack, client: docker.APIClient, docker_host: str, image: str) -> None:
        self._stack = stack
        self._docker_host = docker_host
        self._client = client
        self._image = image

    def ours(self) -> float:
        """Seconds from the request to the RUNNING that the records show (one clock: all on this machine)."""
        begun = time.time()
        session = self._stack.create(self._image, *COMMAND, resources={"cpu": CPU, "memory": MEMORY_BYTES})
        running_at = self._running_at(session["id"])
        self._stack.cancel(session, force=True)
        self._emptied()
        return running_at - begun

    def _running_at(self, session_id: str) -> float:
        """Waits as a client does: on the event stream. Polling would load the machine that is being measured."""
        with connect_sse(self._stack.api, "GET", f"/v1/sessions/{session_id}/events") as stream:
            for event in stream.iter_sse():
                if event.event == "transition" and event.json()["to_status"] == "RUNNING":
                    return datetime.fromisoformat(event.json()["at"]).timestamp()
        raise AssertionError(f"session {session_id} has ended without running")

    def bare(self, *, pull: bool = False) -> float:
        """Seconds for the engine's own pull (if asked), create and start of the same container."""
        repository, _, tag = self._image.rpartition(":")
        begun = time.time()
        if pull:
            for _ in self._client.pull(repository, tag=tag, stream=True, decode=True):
                pass
        host_config = self._client.create_host_config(
            network_mode=NETWORK, mem_limit=MEMORY_BYTES, memswap_limit=MEMORY_BYTES, nano_cpus=int(CPU * 1e9)
        )
        name = f"bare-{uuid.uuid4().hex[:8]}"
        made = self._client.create_container(self._image, list(COMMAND), name=name, host_config=host_config)
        self._client.start(made["Id"])
        took = time.time() - begun
        self._client.remove_container(made["Id"], force=True)
        return took

    def command_line(self) -> float:
        """Seconds for `docker pull` and then `docker run -d` of the same container."""
        limits = (f"--network={NETWORK}", f"--memory={MEMORY_BYTES}", f"--memory-swap={MEMORY_BYTES}", f"--cpus={CPU}")
        begun = time.time()
        self._docker("pull", "--quiet", self._image)
        container = self._docker("run", "--detach", *limits, self._image, *COMMAND)
        took = time.time() - begun
        self._client.remove_container(container, force=True)
        return took

    def _docker(self, *arguments: str) -> str:
        command = ("docker", "--host", self._docker_host, *arguments)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def forget_image(self) -> None:
        """Remove the image and all of its layers from the engine."""
        for image in self._client.images(self._image):
            self._client.remove_image(image["Id"], force=True)
        self._client.prune_images({"dangling": False})

    def _emptied(self) -> None:
        from tests.rig.eventually import eventually_sync

        def empty() -> None:
            assert self._client.containers(all=True) == []

        eventually_sync(empty, timeout=60)


def compare(name: str, peer: str, runs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Comparison:
    """Both in turn, the first pair not counted."""
    comparison = Comparison(name=name, peer=peer)
    ours(), theirs()
    for _ in range(runs):
        comparison.ours_seconds.append(ours())
        comparison.peer_seconds.append(theirs())
    return comparison
