"""Printing: tables for people, plain lines and JSON for programs."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(highlight=False)
_OBEYED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of writing, and halves of characters."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def harmless(value: object) -> str:
    """Text that others wrote, without what a terminal would obey."""
    return _OBEYED.sub("�", str(value))


def print_json(value: Any) -> None:
    """One JSON value on stdout, indented on a terminal."""
    sys.stdout.write(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False) + "\n")


def print_json_line(value: Any) -> None:
    """One JSON value as one line, sent at once."""
    print_line(json.dumps(value, ensure_ascii=False))


def print_line(text: str) -> None:
    """One line on stdout, sent at once, and never broken."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal; tab-separated lines without a heading elsewhere."""
    if not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write("\t".join(harmless("" if cell is None else cell) for cell in row) + "\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless("" if cell is None else cell)) for cell in row))
    console.print(table)


def size(value: float | None) -> str:
    """Bytes as people write them."""
    if value is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(seconds: float | None) -> str:
    """Seconds as people write them."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def age(moment: str) -> str:
    """How long ago a time of the API was."""
    return duration((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
