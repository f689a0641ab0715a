"""`towline pull …`."""

import sys
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
    shown: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        screen = _screen(stack, as_json)
        for event in Client().pulls(seconds=seconds):
            if event.kind == "pulls":
                shown = {one["id"]: one for one in event.data["pulls"] if pull in (None, one["id"])}
                changed = list(shown.values())
            elif pull not in (None, event.data["id"]):
                continue
            elif event.kind == "ended":
                shown.pop(event.data["id"], None)
                changed = []
            else:
                shown[event.data["id"]] = event.data
                changed = [event.data]
            screen(list(shown.values()), changed)
            if pull is not None and not shown:
                return


_Pulls = list[dict[str, Any]]


def _screen(stack: ExitStack, as_json: bool) -> Callable[[_Pulls, _Pulls], None]:
    """Where pulls are watched: one picture of all on a terminal, lines of what has changed elsewhere."""
    if sys.stdout.isatty() and not as_json:
        live = stack.enter_context(Live(console=console, auto_refresh=False))
        return lambda all_, _: live.update(Text("\n".join(map(_line, all_)) or "no pull in flight"), refresh=True)
    lines = LineDisplay(sys.stdout)

    def print_changed(_: _Pulls, changed: _Pulls) -> None:
        for one in changed:
            if one["progress"] is None:
                continue
            if as_json:
                print_json_line(one)
            else:
                lines.show(one["progress"])

    return print_changed


def _line(one: dict[str, Any]) -> str:
    return f"{harmless(one['agent_id'])} {harmless(one['image'])}: {_account(one)}"
