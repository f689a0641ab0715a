"""`towline agent …` and `towline pull …`."""

import time
from typing import Annotated, Any, Final

import typer
from rich.live import Live
from rich.text import Text

from towline.cli.client import Client
from towline.cli.output import AsJson, age, console, print_json, print_table, size
from towline.cli.progress import summary

agents = typer.Typer(help="Agents: the Docker hosts.", no_args_is_help=True)
pulls = typer.Typer(help="Pulls in flight.", no_args_is_help=True)
_WATCH_SECONDS: Final = 0.5


@agents.command("ls")
def list_agents(as_json: AsJson = False) -> None:
    """List agents."""
    found = Client().ask("GET", "/v1/agents")["agents"]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["id"],
            one["status"] + (" cordoned" if one["cordoned"] else ""),
            f"{one['cpu_free']:g}/{one['cpu']:g}",
            f"{size(one['memory_bytes_free'])}/{size(one['memory_bytes'])}",
            one["platform"],
            f"{one['engine_version']} {one['store_kind']}",
            age(one["seen_at"]),
        )
        for one in found
    ]
    print_table(("ID", "STATUS", "CORES FREE", "MEMORY FREE", "PLATFORM", "ENGINE", "SEEN"), rows)


@agents.command("show")
def show_agent(agent: Annotated[str, typer.Argument(help="An agent's id.")], as_json: AsJson = False) -> None:
    """Show one agent."""
    found = Client().ask("GET", f"/v1/agents/{agent}")
    if as_json:
        print_json(found)
    else:
        print_table(("", ""), found.items())


@pulls.command("ls")
def list_pulls(as_json: AsJson = False) -> None:
    """List pulls in flight."""
    found = Client().ask("GET", "/v1/pulls")["pulls"]
    if as_json:
        print_json(found)
    else:
        print_table(("ID", "AGENT", "IMAGE", "WAITERS", "PROGRESS"), [_row(one) for one in found])


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    pull = one["pull"]
    return pull["pull_id"], pull["agent_id"], pull["image"], len(one["sessions"]), summary(pull)


@pulls.command("show")
def show_pull(pull: Annotated[str, typer.Argument(help="A pull's id.")], as_json: AsJson = False) -> None:
    """Show one pull in flight, with its layers and who waits for it."""
    found = Client().ask("GET", f"/v1/pulls/{pull}")
    if as_json:
        print_json(found)
        return
    progress = found["pull"]
    rows: list[tuple[object, object]] = [
        ("pull", progress["pull_id"]),
        ("image", progress["image"]),
        ("agent", progress["agent_id"]),
        ("progress", summary(progress)),
        ("waiting", " ".join(found["sessions"])),
    ]
    rows += [
        (f"layer {one['id']}", f"{one['phase']} {size(one['bytes_done'])}/{size(one['bytes_total'])}")
        for one in progress["shown_layers"]
    ]
    print_table(("", ""), rows)


@pulls.command()
def watch(seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None) -> None:
    """Show the pulls in flight, live, until Ctrl-C."""
    client = Client()
    until = None if seconds is None else time.monotonic() + seconds
    with Live(console=console, auto_refresh=False) as live:
        while until is None or time.monotonic() < until:
            found = client.ask("GET", "/v1/pulls")["pulls"]
            lines = [f"{one['pull']['agent_id']} {one['pull']['image']}: {summary(one['pull'])}" for one in found]
            live.update(Text("\n".join(lines) or "no pull in flight"), refresh=True)
            time.sleep(_WATCH_SECONDS)
