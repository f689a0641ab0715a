"""The real stack as a person runs it: `towline up` as a process, spoken to through HTTP and the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.rig.eventually import eventually_sync
from tests.rig.ports import free_port
from towline.domain.lifecycle import FINAL, Status

_READY_SECONDS = 90.0
ENDED = ("TERMINATED", "CANCELLED", "ERROR")


@dataclass(frozen=True, kw_only=True)
class RunningStack:
    """`api` speaks as the first superadmin."""

    directory: Path
    temporal: str
    api: httpx.Client

    def cli(self, *arguments: str, timeout_seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run `towline …` off a terminal."""
        return subprocess.run(
            [*_PROGRAM, *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """Where clients find this stack."""
        return dict(_plain_environment(), TOWLINE_DATA_DIR=str(self.directory))

    def create(self, image: str, *command: str, **fields: Any) -> dict[str, Any]:
        """Ask for a session; answers its view."""
        body = {"image": image, "network": "none", "resources": {"cpu": 0.05, "memory": "16m"}, **fields}
        if command:
            body["command"] = list(command)
        answer = self.api.post("/v1/sessions", json=body)
        assert answer.status_code == 201, answer.text
        view: dict[str, Any] = answer.json()
        return view

    def show(self, session: dict[str, Any]) -> dict[str, Any]:
        """The session now."""
        answer = self.api.get(f"/v1/sessions/{session['id']}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    def reaches(self, session: dict[str, Any], *statuses: str, timeout_seconds: float = 60.0) -> dict[str, Any]:
        """Wait until the session is in one of the statuses."""

        def seen() -> dict[str, Any]:
            view = self.show(session)
            assert view["status"] in statuses, view
            return view

        view: dict[str, Any] = eventually_sync(seen, timeout=timeout_seconds, interval=0.1)
        return view

    def ended(self, session: dict[str, Any], *, timeout_seconds: float = 60.0) -> dict[str, Any]:
        """Wait until the session has ended."""
        return self.reaches(session, *ENDED, timeout_seconds=timeout_seconds)

    def cancel(self, session: dict[str, Any], *, force: bool = False) -> None:
        """Ask the session to end."""
        answer = self.api.post(f"/v1/sessions/{session['id']}/cancel", json={"force": force, "why": "a test"})
        assert answer.status_code == 202, answer.text

    def end_all(self) -> None:
        """Force every session that has not ended to its end."""
        open_ = [status for status in Status if status not in FINAL]
        answer = self.api.get("/v1/sessions", params={"status": open_, "limit": 200})
        for session in answer.json()["sessions"]:
            self.cancel(session, force=True)

    def agent(self) -> dict[str, Any]:
        """The one agent."""
        [agent] = self.api.get("/v1/agents").json()["agents"]
        view: dict[str, Any] = agent
        return view

    def holds_nothing(self) -> None:
        """The ledger is empty: all that the agent has is free."""
        agent = self.agent()
        assert (agent["cpu_free"], agent["memory_bytes_free"]) == (agent["cpu"], agent["memory_bytes"])
        self.has_no_drift()

    def has_no_drift(self) -> None:
        """The ledger and the kernels say the same."""
        assert self.api.get("/v1/ledger/drift").json() == {"drift": []}

    def kill(self, part: str) -> int:
        """SIGKILL one part of the stack; the supervisor starts it again. Answers the dead process's id."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def pid(self, part: str) -> int:
        """The part's process id now."""
        known = json.loads((self.directory / "processes.json").read_text())
        return int(known[part]["identity"]["pid"])


_PROGRAM = [sys.executable, "-m", "towline.cli.main"]


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_")}


@contextmanager
def running_stack(
    directory: Path, docker_host: str, *, settings: Mapping[str, str] | None = None
) -> Iterator[RunningStack]:
    """`towline up` until the block ends; then its ordered stop, whose exit code must be 0."""
    ready = directory / "ready.json"
    data = directory / "data"
    command = [*_PROGRAM, "up", f"--data-dir={data}", f"--docker-host={docker_host}", f"--ready-file={ready}"]
    command += [f"--{name}-port={free_port()}" for name in ("api", "temporal", "temporal-ui")]
    log = directory / "up.log"
    with log.open("w") as output:
        environment = {**_plain_environment(), **(settings or {})}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)

    def is_ready() -> dict[str, str]:
        assert process.poll() is None, log.read_text()
        assert ready.exists(), log.read_text()
        addresses: dict[str, str] = json.loads(ready.read_text())
        return addresses

    try:
        addresses = eventually_sync(is_ready, timeout=_READY_SECONDS)
        token = (data / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=addresses["api"], headers=headers, timeout=30.0) as api:
            yield RunningStack(directory=data, temporal=addresses["temporal"], api=api)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 0, log.read_text()


class AgentProcess:
    """`towline worker agent` as a process of its own, beside a stack."""

    def __init__(self, stack: RunningStack, agent_id: str, docker_host: str, settings: Mapping[str, str]) -> None:
        self.id = agent_id
        self._log = stack.directory / f"worker-{agent_id}.log"
        self._environment = {
            **stack.environment(),
            **settings,
            "TOWLINE_TEMPORAL__ADDRESS": stack.temporal,
            "TOWLINE_AGENT__DOCKER_HOST": docker_host,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, as another life of the agent."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*_PROGRAM, "worker", "agent", "--id", self.id],
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def start_another(self) -> subprocess.CompletedProcess[str]:
        """A second worker of the same id, until it ends by itself."""
        command = [*_PROGRAM, "worker", "agent", "--id", self.id]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60, check=False)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None


def after_seconds(seconds: float) -> None:
    """Let that much time pass: for what must *not* happen meanwhile."""
    end = time.monotonic() + seconds
    eventually_sync(lambda: time.monotonic() >= end, timeout=seconds + 5)
