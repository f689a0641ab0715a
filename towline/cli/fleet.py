"""`towline pull …`."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from rich.live import Live
from rich.text import Text

from towline.cli.client import Client
from towline.cli.output import AsJson, console, duration, harmless, print_json, print_json_line, print_table, size
from towline.cli.progress import LineDisplay, summary

pulls = typer.Typer(help="Pulls, in flight and past.", no_args_is_help=True)
_WATCH_SECONDS: Final = 0.5
_IN_FLIGHT: Final = {"outcome": "running"}


@pulls.command("ls")
def list_pulls(
    past: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.", min=1, max=200)] = 50,
    as_json: AsJson = False,
) -> None:
    """List pulls in flight."""
    found = Client().ask("GET", "/v1/pulls", params={"limit": limit} | ({} if past else _IN_FLIGHT))["pulls"]
    if as_json:
        print_json(found)
    else:
        print_table(("ID", "AGENT", "IMAGE", "WAITERS", "PROGRESS"), [_row(one) for one in found])


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    return one["id"], one["agent_id"], one["image"], len(one["waits"]) + one["other_waiters"], _account(one)


def _account(one: dict[str, Any]) -> str:
    """How far the pull is, or how it ended."""
    if one["progress"] is not None:
        return summary(one["progress"])
    if one["ended_at"] is None:
        return str(one["outcome"])
    took = datetime.fromisoformat(one["ended_at"]) - datetime.fromisoformat(one["started_at"])
    parts = [one["outcome"], f"{size(one['bytes_pulled'])} in {duration(took.total_seconds())}"]
    if one["attempts"] > 1:
        parts.append(f"{one['attempts']} attempts")
    if one["reason"]:
        parts.append(f"{one['reason']}: {harmless(one['message'])}")
    return ", ".join(parts)


@pulls.command("show")
def show_pull(pull: Annotated[str, typer.Argument(help="A pull's id.")], as_json: AsJson = False) -> None:
    """Show one pull with its layers, and who waits or waited for it."""
    found = Client().ask("GET", f"/v1/pulls/{quote(pull, safe='')}")
    if as_json:
        print_json(found)
        return
    rows: list[tuple[object, object]] = [
        ("pull", found["id"]),
        ("image", found["image"]),
        ("digest", found["digest"]),
        ("agent", found["agent_id"]),
        ("progress", _account(found)),
    ]
    rows += [(f"waiter {wait['session_id']}", wait["outcome"]) for wait in found["waits"]]
    for one in (found["progress"] or {}).get("shown_layers", ()):
        rows += [(f"layer {one['id']}", f"{one['phase']} {size(one['bytes_done'])}/{size(one['bytes_total'])}")]
    print_table(("", ""), rows)


@pulls.command("cancel")
def cancel_pull(
    pull: Annotated[str, typer.Argument(help="A pull's id.")],
    why: Annotated[str, typer.Option(help="Why; it is recorded with every session that waits.")] = "",
    as_json: AsJson = False,
) -> None:
    """End a pull for everybody who waits for it; for superadmins."""
    found = Client().ask("POST", f"/v1/pulls/{quote(pull, safe='')}/cancel", body={"why": why})
    if as_json:
        print_json(found)
    else:
        print_table(("WAITER", "OUTCOME"), [(wait["session_id"], wait["outcome"]) for wait in found["waits"]])


@pulls.command()
def watch(
    pull: Annotated[str | None, typer.Argument(help="Only this pull, until it ends.", show_default=False)] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show pulls in flight, live, until Ctrl-C."""
    client = Client()
    until = None if seconds is None else time.monotonic() + seconds
    with ExitStack() as stack:
        screen = _screen(stack, as_json)
        while until is None or time.monotonic() < until:
            found = client.ask_patiently("GET", "/v1/pulls", params=_IN_FLIGHT)["pulls"]
            wanted = [one for one in found if pull in (None, one["id"])]
            screen(wanted)
            if pull is not None and not wanted:
                return
            client.sleep(_WATCH_SECONDS)


def _screen(stack: ExitStack, as_json: bool) -> Callable[[list[dict[str, Any]]], None]:
    """Where pulls are watched: one picture that changes on a terminal, lines of what has changed elsewhere."""
    if sys.stdout.isatty() and not as_json:
        live = stack.enter_context(Live(console=console, auto_refresh=False))
        return lambda found: live.update(Text("\n".join(map(_line, found)) or "no pull in flight"), refresh=True)
    lines = LineDisplay(sys.stdout)

    def print_all(found: list[dict[str, Any]]) -> None:
        for one in found:
            if one["progress"] is None:
                continue
            if as_json:
                print_json_line(one)
            else:
                lines.show(one["progress"])

    return print_all


def _line(one: dict[str, Any]) -> str:
    return f"{harmless(one['agent_id'])} {harmless(one['image'])}: {_account(one)}"
