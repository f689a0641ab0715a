"""Child processes that die with us, and the proof that a process is one of ours."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

_LEASH: Final = Path(__file__).with_name("leash.py")
_LOG_BYTES_MAX: Final = 10 * 1024 * 1024
_TAIL_BYTES: Final = 8 * 1024


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program to run. `argv[0]` is an absolute path; `environment` is added to ours; `user` is an account to become.

    `death_signal` is what the kernel sends when we die without having stopped it; `stop_signal` is how we ask it to stop,
    and `grace_seconds` how long it may take before it is killed.
    """

    name: str
    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    death_signal: signal.Signals = signal.SIGKILL
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process that cannot be mistaken for a later one with the same pid: ticks since boot at its start, and the boot."""

    pid: int
    started_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """The identity of a live process; None when there is none (a zombie has ended)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return None
        # The second field is the program's name in parentheses, and may hold blanks and parentheses itself.
        fields = stat.rpartition(")")[2].split()
        if fields[0] in ("Z", "X"):
            return None
        return cls(pid=pid, started_ticks=int(fields[19]), boot_id=boot_id)

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessIdentity.of(self.pid) == self


class Child:
    """A running child: in a session of its own, so that the terminal's Ctrl-C reaches only us, writing to its log file."""

    def __init__(self, command: Command, process: subprocess.Popen[bytes], log: Path) -> None:
        self.command: Final = command
        self.log: Final = log
        self._process = process

    @classmethod
    def start(cls, command: Command, log: Path) -> "Child":
        """Start it. Call from a thread that lives as long as the child shall: the leash is bound to the thread."""
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        roll(log)
        leash = (sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), str(int(command.death_signal)))
        with log.open("ab") as output:
            process = _spawn((*leash, command.user or "-", *command.argv), command, output)
        return cls(command, process, log)

    @property
    def pid(self) -> int:
        """The process id, which is the id of its session and group, too."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    async def exited(self) -> int:
        """Wait for its end. Returns the exit code."""
        descriptor = os.pidfd_open(self.pid) if self.returncode is None else None
        if descriptor is not None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(descriptor, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self._process.wait()

    async def stop(self) -> None:
        """Ask it to stop, and kill it with all that it started when its grace is over."""
        self._signal(self.command.stop_signal)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited(), self.command.grace_seconds)
        self.kill()

    def stop_and_wait(self) -> None:
        """The same, for those without an event loop."""
        self._signal(self.command.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self.command.grace_seconds)
        self.kill()

    def kill(self) -> None:
        """Kill what is left of it: the group may have members after the child itself has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self, lines: int = 12) -> str:
        """The last lines that it wrote, for the error message."""
        return tail(self.log, lines)

    def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            self._process.send_signal(number)


def _spawn(argv: tuple[str, ...], command: Command, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        cwd=command.cwd,
        env={**os.environ, **command.environment},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=0o077,  # What users asked for is in Temporal's file, too: not for everybody's eyes.
    )


def roll(log: Path) -> None:
    """Keep the log within bounds, one older file beside it. Its writers append, so they go on in the emptied file."""
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.with_suffix(log.suffix + ".1").write_bytes(log.read_bytes())
        os.truncate(log, 0)


def tail(log: Path, lines: int) -> str:
    """The last lines of a log; empty when there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(text.rstrip().splitlines()[-lines:])
