"""Showing pulls while they run: bars on a terminal, lines elsewhere. Works on a pull as the API sends it."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from towline.cli.output import duration, harmless, size
from towline.domain.progress import LayerPhase, PullPhase, Verdict

_LINE_EVERY_SECONDS: Final = 1.0


class PullDisplay(Protocol):
    """Where pulls are shown."""

    def show(self, pull: dict[str, Any]) -> None:
        """A pull as it is now."""
        ...


def summary(pull: dict[str, Any]) -> str:
    """One line: phase, bytes, percentage, rate, time left, and what is wrong if something is."""
    percent = "" if pull["percent"] is None else f" {pull['percent']:.1f}%"
    parts = [f"{pull['phase']}{percent} {size(pull['bytes_done'])}/{size(pull['bytes_total'])}"]
    if pull["bytes_present"]:
        parts.append(f"{size(pull['bytes_present'])} there already")
    if pull["rate_bytes_per_s"]:
        parts.append(f"{size(pull['rate_bytes_per_s'])}/s")
    if pull["eta_seconds"] is not None and pull["phase"] != PullPhase.DONE:
        parts.append(f"{duration(pull['eta_seconds'])} left")
    if pull["queue_position"] is not None:
        parts.append(f"number {pull['queue_position']} in the queue")
    if pull["attempt"] > 1:
        parts.append(f"attempt {pull['attempt']} of {pull['attempts_max']}")
    if pull["retried_bytes"]:
        parts.append(f"{size(pull['retried_bytes'])} brought again")
    if pull["waiters"] > 1:
        parts.append(f"{pull['waiters']} waiting")
    if pull["verdict"] != Verdict.HEALTHY:
        again = "" if pull["retry_in_seconds"] is None else f" in {duration(pull['retry_in_seconds'])}"
        parts.append(f"{pull['verdict']}{again}: {harmless(pull['verdict_reason'])}")
    return ", ".join(parts)


class LineDisplay:
    """A line whenever a pull has moved, at most one a second for each; on stderr, so that stdout is the container's. A
    countdown's seconds are no move: a failed attempt is told once."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stderr
        self._clock = clock
        self._printed: dict[str, tuple[str, float]] = {}
        """By pull: what was told last, without a countdown's seconds, and when."""

    def show(self, pull: dict[str, Any]) -> None:
        told = summary({**pull, "retry_in_seconds": None})
        last, printed_at = self._printed.get(pull["pull_id"], ("", float("-inf")))
        now = self._clock()
        if told != last and (now - printed_at >= _LINE_EVERY_SECONDS or pull["phase"] == PullPhase.DONE):
            self._printed[pull["pull_id"]] = told, now
            self._out.write(f"pulling {harmless(pull['image'])}: {summary(pull)}\n")
            self._out.flush()


class BarDisplay(AbstractContextManager["BarDisplay"]):
    """For each pull a bar for the whole, and one for each layer at work."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            console=console or Console(stderr=True),
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
        # The bar is full when the pull has succeeded: not when the last byte has come, and extraction goes on.
        percent = pull["percent"]
        title = f"pulling on {harmless(pull['agent_id'])}"
        self._bar(pull["pull_id"], title, percent or 0, None if percent is None else 100, summary(pull))
        for layer in pull["shown_layers"]:
            if layer["phase"] != LayerPhase.PRESENT:
                self._layer(pull["pull_id"], layer)

    def _layer(self, pull_id: str, layer: dict[str, Any]) -> None:
        is_extracting = layer["phase"] == LayerPhase.EXTRACTING and layer["extracted_bytes"]
        done = layer["extracted_bytes"] if is_extracting else layer["bytes_done"]
        note = f"{layer['phase']} {size(done)}/{size(layer['bytes_total'])}"
        self._bar(f"{pull_id}/{layer['id']}", f"  {harmless(layer['id'])}", done, layer["bytes_total"], note)

    def _bar(self, key: str, title: str, done: float, total: float | None, note: str) -> None:
        shown = escape(note)
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(escape(title), total=total, note=shown)
        self._progress.update(self._tasks[key], completed=done, total=total, note=shown)
