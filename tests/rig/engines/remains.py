"""What an engine may leave behind when it is killed: shims, containers, mounts."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def processes_naming(text: str) -> set[int]:
    """The pids of the processes with `text` in their arguments. An engine's shims all carry its run directory there."""
    wanted, found = text.encode(), set()
    for directory in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (directory / "cmdline").read_bytes():
                found.add(int(directory.name))
    return found - {os.getpid(), os.getppid()}


def kill_with_descendants(pids: Iterable[int]) -> None:
    """SIGKILL them and all that they started: a container goes on living when only its shim is killed."""
    children = _children()
    doomed, queue = set(), list(pids)
    while queue:
        pid = queue.pop()
        if pid not in doomed:
            doomed.add(pid)
            queue += children.get(pid, [])
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def mounts_below(directory: Path) -> list[Path]:
    """The mount points at and below a directory, the last mounted first."""
    lines = (_PROC / "self" / "mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].replace("\\040", " ")) for line in lines]
    return [point for point in reversed(points) if point.is_relative_to(directory)]


def unmount_below(directory: Path) -> None:
    """Unmount them, lazily, so that what still uses one does not hinder."""
    for point in mounts_below(directory):
        subprocess.run(["umount", "-l", str(point)], check=False, capture_output=True)


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for directory in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((directory / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(directory.name))
    return children
