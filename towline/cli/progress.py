"""Showing a pull while it runs: bars on a terminal, lines elsewhere."""

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from towline.cli.output import duration, harmless, size

_LINE_EVERY_SECONDS: Final = 1.0


class PullDisplay(Protocol):
    """Where a pull is shown."""

    def show(self, pull: dict[str, Any]) -> None:
        """The pull as it is now."""
        ...


def summary(pull: dict[str, Any]) -> str:
    """One line: phase, bytes, percentage, rate, time left, and what is wrong if something is."""
    percent = "" if pull["percent"] is None else f" {pull['percent']:.1f}%"
    parts = [f"{pull['phase']}{percent} {size(pull['bytes_done'])}/{size(pull['bytes_total'])}"]
    if pull["rate_bytes_per_s"]:
        parts.append(f"{size(pull['rate_bytes_per_s'])}/s")
    if pull["eta_seconds"] is not None and pull["phase"] != "done":
        parts.append(f"{duration(pull['eta_seconds'])} left")
    if pull["attempt"] > 1:
        parts.append(f"attempt {pull['attempt']} of {pull['attempts_max']}")
    if pull["waiters"] > 1:
        parts.append(f"{pull['waiters']} waiting")
    if pull["verdict"] != "healthy":
        parts.append(f"{pull['verdict']}: {harmless(pull['verdict_reason'])}")
    return ", ".join(parts)


class LineDisplay:
    """A line whenever the pull has moved, at most one a second; on stderr, so that stdout is the container's."""

    def __init__(self) -> None:
        self._last = ""
        self._printed_at = 0.0

    def show(self, pull: dict[str, Any]) -> None:
        line = f"pulling {harmless(pull['image'])}: {summary(pull)}"
        now = time.monotonic()
        if line != self._last and (now - self._printed_at >= _LINE_EVERY_SECONDS or pull["phase"] == "done"):
            self._last, self._printed_at = line, now
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


class BarDisplay(AbstractContextManager["BarDisplay"]):
    """A bar for the whole, and one for each layer at work."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "BarDisplay":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, pull: dict[str, Any]) -> None:
        self._bar("all", "all layers", pull["bytes_done"], pull["bytes_total"], summary(pull))
        for layer in pull["shown_layers"]:
            if layer["phase"] != "present":
                self._layer(layer)

    def _layer(self, layer: dict[str, Any]) -> None:
        extracting = layer["phase"] == "extracting" and layer["extracted_bytes"]
        done = layer["extracted_bytes"] if extracting else layer["bytes_done"]
        note = f"{layer['phase']} {size(done)}/{size(layer['bytes_total'])}"
        self._bar(layer["id"], f"  {layer['id']}", done, layer["bytes_total"], note)

    def _bar(self, key: str, title: str, done: int, total: int | None, note: str) -> None:
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(title, total=total, note=note)
        self._progress.update(self._tasks[key], completed=done, total=total, note=note)
