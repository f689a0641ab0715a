"""`towline quota …`."""

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from towline.cli.client import Client
from towline.cli.output import AsJson, print_json, print_table, size
from towline.cli.run_options import seconds_of

app = typer.Typer(help="Quotas: what users and projects may have at once.", no_args_is_help=True)

Kind = Annotated[str, typer.Argument(help="`user` or `project`.", metavar="user|project")]
Name = Annotated[str, typer.Argument(help="Whose; `*`: of every user without a quota of their own.")]


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show the quotas that your own sessions count against."""
    _show(Client().ask("GET", "/v1/me/quotas")["quotas"], as_json)


@app.command("ls")
def list_(as_json: AsJson = False) -> None:
    """List all quotas. For superadmins."""
    _show(Client().ask("GET", "/v1/quotas")["quotas"], as_json)


@app.command("set")
def set_(
    kind: Kind,
    name: Name,
    sessions: Annotated[int | None, typer.Option(help="Sessions that run at one time.")] = None,
    cpu: Annotated[float | None, typer.Option(help="Cores, of all that run.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of all that run, such as 512m or 8g.")] = None,
    gpu: Annotated[int | None, typer.Option(help="GPUs, of all that run.")] = None,
    pending: Annotated[int | None, typer.Option(help="Sessions that do not run yet.")] = None,
    kernels: Annotated[int | None, typer.Option(help="Containers of one session.")] = None,
    lifetime: Annotated[str | None, typer.Option(help="Time limit of a session: seconds, or such as 8h.")] = None,
    priority: Annotated[int | None, typer.Option(help="The highest priority, 0 to 100.")] = None,
    as_json: AsJson = False,
) -> None:
    """Set the limits of a user or a project; what is not given is not limited. For superadmins."""
    limits: dict[str, Any] = {
        "sessions": sessions,
        "cpu": cpu,
        "memory": memory,
        "gpu": gpu,
        "pending": pending,
        "kernels": kernels,
        "lifetime": None if lifetime is None else seconds_of("lifetime", lifetime),
        "priority": priority,
    }
    body = {limit: value for limit, value in limits.items() if value is not None}
    _show([Client().ask("PUT", _path(kind, name), body=body)], as_json)


@app.command()
def unset(kind: Kind, name: Name) -> None:
    """Lift all limits of a user or a project. For superadmins."""
    Client().ask("DELETE", _path(kind, name))
    sys.stderr.write(f"{kind} {name} has no quota any more\n")


def _path(kind: str, name: str) -> str:
    return f"/v1/quotas/{quote(kind, safe='')}/{quote(name, safe='')}"


def _show(quotas: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(quotas)
        return
    rows = [
        (
            f"{one['kind']} {one['name']}",
            _of(one["used"]["sessions"], one["limits"]["sessions"]),
            _of(f"{one['used']['cpu']:g}", one["limits"]["cpu"]),
            _of(size(one["used"]["memory_bytes"]), _size(one["limits"]["memory_bytes"])),
            _of(one["used"]["gpu"], one["limits"]["gpu"]),
            _of(one["pending"], one["limits"]["pending"]),
            *(_or_none(one["limits"][limit]) for limit in ("kernels", "lifetime", "priority")),
        )
        for one in quotas
    ]
    columns = ("WHOSE", "SESSIONS", "CORES", "MEMORY", "GPUS", "PENDING", "KERNELS", "LIFETIME, S", "PRIORITY")
    print_table(columns, rows)


def _of(used: object, limit: object) -> str:
    return f"{used}/{_or_none(limit)}"


def _or_none(limit: object) -> str:
    if limit is None:
        return "-"
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def _size(limit: int | None) -> str | None:
    return None if limit is None else size(limit)
