"""`towline session …`."""

import sys
import time
from typing import Annotated, Any, Final

import typer

from towline.cli.client import Client, session_path
from towline.cli.output import AsJson, age, harmless, print_json, print_json_line, print_line, print_table
from towline.cli.progress import summary
from towline.domain.lifecycle import FINAL, Status
from towline.errors import TowlineError

app = typer.Typer(help="Sessions: list, show, end, follow.", no_args_is_help=True)

_LOOK_SECONDS: Final = 0.5

Id = Annotated[str, typer.Argument(metavar="SESSION", help="A session's id.")]
Why = Annotated[str, typer.Option(help="Why; it is recorded.")]


class NotEndedError(TowlineError):
    """The session goes on after all the time that was to be waited."""

    code = "not-ended"


@app.command("ls")
def list_(
    status: Annotated[list[str] | None, typer.Option(help="Only in this status; repeat it for more.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    label: Annotated[str | None, typer.Option(help="Only with NAME=VALUE.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only on this agent.")] = None,
    image: Annotated[str | None, typer.Option(help="Only of this image.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first."""
    wanted = {"status": status, "owner": owner, "label": label, "agent": agent, "image": image}
    found = _pages(Client(), {key: value for key, value in wanted.items() if value}, limit)
    if as_json:
        print_json(found)
        return
    columns = ("ID", "STATUS", "REASON", "OWNER", "IMAGE", "AGE", "EXIT")
    rows = [
        (one["id"], one["status"], one["reason"], one["owner"], one["image"], age(one["created_at"]), one["exit_code"])
        for one in found
    ]
    print_table(columns, rows)


def _pages(client: Client, params: dict[str, Any], limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while len(found) < limit:
        page = client.ask(
            "GET",
            "/v1/sessions",
            params=params | {"limit": min(200, limit - len(found))} | ({"cursor": cursor} if cursor else {}),
        )
        found += page["sessions"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return found


@app.command()
def show(session: Id, as_json: AsJson = False) -> None:
    """Show one session with its kernels and its pull."""
    found = Client().ask("GET", session_path(session))
    if as_json:
        print_json(found)
        return
    names = ("id", "name", "status", "reason", "message", "owner", "image", "exit_code", "created_at", "ended_at")
    rows = [(name, found[name]) for name in names if found[name] not in (None, "")]
    if found["ended_by"]:
        rows.append(("ended by", f"{found['ended_by']} {found['ended_why']}".strip()))
    if found["pull"]:
        rows.append(("pull", summary(found["pull"])))
    for kernel in found["kernels"]:
        parts = (kernel["status"], kernel["reason"], kernel["agent_id"], kernel["digest"], kernel["container_id"])
        rows.append((f"kernel {kernel['index']}", " ".join(str(part) for part in parts if part)))
    print_table(("", ""), rows)


@app.command()
def cancel(
    session: Id,
    force: Annotated[bool, typer.Option("--force", help="Show the end at once, clean up behind it.")] = False,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """End a session; one that does not run yet becomes CANCELLED."""
    _answer(Client().ask("POST", f"{session_path(session)}/cancel", body={"force": force, "why": why}), as_json)


@app.command()
def terminate(session: Id, why: Why = "", as_json: AsJson = False) -> None:
    """Stop a running session with grace."""
    _answer(Client().ask("POST", f"{session_path(session)}/terminate", body={"why": why}), as_json)


def _answer(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif found["status"] in FINAL:
        print_line(f"{found['id']} has ended: {found['status']} ({found['reason']})")
    else:
        print_line(f"{found['id']} is asked to end; it is {found['status']} now")


@app.command()
def logs(
    session: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the kernel has ended.")] = False,
    kernel: Annotated[int, typer.Option(help="Which kernel.", min=0)] = 0,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0)] = None,
) -> None:
    """Print what a kernel has written, as it came."""
    for text in Client().logs(session, kernel=kernel, tail=tail, follow=follow):
        sys.stdout.write(text)
        sys.stdout.flush()


@app.command()
def events(
    session: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the session has ended.")] = False,
    after: Annotated[int, typer.Option(help="Only events with higher numbers.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Print a session's events."""
    client = Client()
    if not follow:
        found = client.ask("GET", f"{session_path(session)}/events", params={"after": after})["events"]
        for event in found:
            _print_event(event["kind"], event, as_json)
        return
    for event in client.events(session, after=after):
        _print_event(event.kind, event.data, as_json)


def _print_event(kind: str, data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json_line({"event": kind, **data})
    elif kind == "progress":
        print_line(f"  pull on {data['agent_id']}: {summary(data)}")
    else:
        what = f"kernel {data['kernel']} {data['from_status']} → {data['to_status']}" if kind == "transition" else kind
        tail = " ".join(str(part) for part in (data["reason"], data["message"], data["actor"]) if part)
        print_line(f"{data['seq']:>4} {data['at']} {what} {harmless(tail)}".rstrip())


@app.command()
def wait(
    session: Id,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until a session has ended. Exits with 0 if its command did, with 1 otherwise."""
    found = _ended(Client(), session, timeout)
    if as_json:
        print_json(found)
    else:
        print_line(f"{found['id']} {found['status']} ({found['reason']})")
    raise typer.Exit(0 if found["status"] == Status.TERMINATED and found["exit_code"] == 0 else 1)


def _ended(client: Client, session_id: str, timeout_seconds: float | None) -> dict[str, Any]:
    """The session, once it has ended. Raises `NotEndedError`."""
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while (found := client.session(session_id))["status"] not in FINAL:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise NotEndedError(f"{session_id} has not ended within {timeout_seconds:g} s; it is {found['status']}")
        client.sleep(_LOOK_SECONDS if left is None else min(_LOOK_SECONDS, left))
    return found
