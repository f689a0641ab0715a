"""`towline agent …`."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from towline.cli.client import Client
from towline.cli.output import AsJson, age, print_json, print_line, print_table, size
from towline.cli.run_options import seconds_of

agents = typer.Typer(help="Agents: the Docker hosts.", no_args_is_help=True)

AgentId = Annotated[str, typer.Argument(help="An agent's id.")]
Why = Annotated[str, typer.Option(help="Why; it is recorded.")]


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
            _status(one),
            f"{one['cpu_free']:g}/{one['cpu']:g}",
            f"{size(one['memory_bytes_free'])}/{size(one['memory_bytes'])}",
            f"{one['gpu_free']}/{one['gpu']}",
            one["platform"],
            one["resource_group"],
            f"{one['engine_version']} {one['store_kind']}",
            age(one["seen_at"]),
        )
        for one in found
    ]
    columns = ("ID", "STATUS", "CORES FREE", "MEMORY FREE", "GPUS FREE", "PLATFORM", "GROUP", "ENGINE", "SEEN")
    print_table(columns, rows)


@agents.command("show")
def show_agent(agent: AgentId, as_json: AsJson = False) -> None:
    """Show one agent, and what has happened to it."""
    _show(Client().ask("GET", _path(agent)), as_json)


@agents.command()
def audit(as_json: AsJson = False) -> None:
    """Compare what the ledger says is reserved with what the sessions' kernels hold; exit code 1 where they differ. For superadmins."""
    found = Client().ask("GET", "/v1/ledger/drift")["drift"]
    if as_json:
        print_json(found)
    else:
        for sentence in found or ["the ledger holds what the kernels do"]:
            print_line(sentence)
    raise typer.Exit(1 if found else 0)


@agents.command()
def cordon(agent: AgentId, why: Why = "", as_json: AsJson = False) -> None:
    """Give an agent no new work; what is there stays. For superadmins."""
    _show(Client().ask("POST", f"{_path(agent)}/cordon", body={"why": why}), as_json)


@agents.command()
def drain(
    agent: AgentId,
    why: Why = "",
    deadline: Annotated[
        str | None,
        typer.Option(help="End what still runs there after so long: seconds, or such as 1h30m.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give an agent no new work, and have its sessions leave it. For superadmins."""
    left = None if deadline is None else seconds_of("deadline", deadline)
    _show(Client().ask("POST", f"{_path(agent)}/drain", body={"why": why, "deadline": left}), as_json)


@agents.command()
def uncordon(agent: AgentId, why: Why = "", as_json: AsJson = False) -> None:
    """Give an agent new work again; a drain is called off. For superadmins."""
    _show(Client().ask("POST", f"{_path(agent)}/uncordon", body={"why": why}), as_json)


def _path(agent: str) -> str:
    return f"/v1/agents/{quote(agent, safe='')}"


def _status(one: dict[str, Any]) -> str:
    closed = " draining" if one["draining"] else " cordoned" if one["cordoned"] else ""
    return f"{one['status']}{closed}"


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows: list[tuple[object, object]] = [(name, value) for name, value in found.items() if name != "events"]
    for event in found["events"]:
        by = f" by {event['actor']}" if event["actor"] else ""
        rows.append((event["at"], f"{event['kind']}{by} {event['message']}".rstrip()))
    print_table(("", ""), rows)
