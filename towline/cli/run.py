"""`towline run`: a session from request to exit code, with the pull to be seen."""

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from towline.cli.client import Client, StreamEvent
from towline.cli.output import harmless
from towline.cli.progress import BarDisplay, LineDisplay, PullDisplay
from towline.errors import FieldProblem, InvalidInputError

app = typer.Typer()

_ENDED: Final = ("TERMINATED", "CANCELLED", "ERROR")
_HAS_OUTPUT: Final = ("RUNNING", "TERMINATING", *_ENDED)
TIME_LIMIT_CODE: Final = 124
INTERRUPTED_CODE: Final = 130


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    image: Annotated[str, typer.Argument(help="The image, as in `docker run`.")],
    command: Annotated[list[str] | None, typer.Argument(help="The command, after `--`.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="A name for the session.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive-kind", help="A session that lives until ended.")] = False,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE.")] = None,
    env_file: Annotated[Path | None, typer.Option(help="Lines of NAME=VALUE.", exists=True, dir_okay=False)] = None,
    cpus: Annotated[float, typer.Option(help="Cores for each kernel.")] = 1.0,
    memory: Annotated[str, typer.Option("--memory", "-m", help="Memory for each kernel, such as 512m.")] = "512m",
    gpus: Annotated[int, typer.Option(help="GPUs for each kernel.")] = 0,
    shm: Annotated[str | None, typer.Option(help="Size of /dev/shm.")] = None,
    kernels: Annotated[int, typer.Option(help="How many containers.")] = 1,
    multi_agent: Annotated[bool, typer.Option(help="Kernels may be on several agents.")] = False,
    pull_policy: Annotated[str, typer.Option(help="always, if-not-present, never.")] = "if-not-present",
    allow_stale: Annotated[bool, typer.Option(help="With always: the image present, if the registry is away.")] = False,
    network: Annotated[str, typer.Option(help="bridge, none, host.")] = "bridge",
    publish: Annotated[list[str] | None, typer.Option("--publish", "-p", help="[HOST:]CONTAINER[/udp].")] = None,
    volume: Annotated[list[str] | None, typer.Option("--volume", "-v", help="VOLUME:/TARGET[:ro].")] = None,
    label: Annotated[list[str] | None, typer.Option(help="NAME=VALUE.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only on this agent.")] = None,
    priority: Annotated[int, typer.Option(help="0 to 100.")] = 10,
    time_limit: Annotated[float | None, typer.Option(help="Seconds that it may run.")] = None,
    pull_deadline: Annotated[float | None, typer.Option(help="Seconds that the pull may take.")] = None,
    stop_grace: Annotated[float, typer.Option(help="Seconds from stop to kill.")] = 10.0,
    platform: Annotated[str | None, typer.Option(help="os/arch[/variant].")] = None,
    entrypoint: Annotated[str | None, typer.Option(help="Instead of the image's.")] = None,
    workdir: Annotated[str | None, typer.Option("--workdir", "-w", help="Instead of the image's.")] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="A terminal for the command.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the session's id and return.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Run a command in a container: shows the pull, streams the logs, exits with the container's exit code."""
    words = command or []
    body = {
        "image": image,
        "kind": "interactive" if interactive else "batch",
        "name": name,
        "command": (words[1:] if words[:1] == ["--"] else words) or None,
        "entrypoint": [entrypoint] if entrypoint else None,
        "working_dir": workdir,
        "tty": tty,
        "env": _pairs(_lines(env_file) + (env or []), "env"),
        "resources": {"cpu": cpus, "memory": memory, "gpu": gpus, "shm": shm},
        "kernels": kernels,
        "cluster_mode": "multi-agent" if multi_agent else "single-agent",
        "pull_policy": pull_policy,
        "allow_stale": allow_stale,
        "network": network,
        "ports": [_port(text) for text in publish or ()],
        "mounts": [_mount(text) for text in volume or ()],
        "labels": _pairs(label or [], "label"),
        "agent": agent,
        "priority": priority,
        "time_limit": time_limit,
        "pull_deadline": pull_deadline,
        "stop_grace": stop_grace,
        "platform": platform,
    }
    client = Client()
    # A key of its own lets a lost answer be asked for again without a second session.
    made = client.ask("POST", "/v1/sessions", body=body, headers={"Idempotency-Key": uuid.uuid4().hex})
    if detach:
        sys.stdout.write((json.dumps(made) if as_json else made["id"]) + "\n")
        return
    _attend(client, made["id"], as_json=as_json)


def _attend(client: Client, session_id: str, *, as_json: bool) -> None:
    if not as_json:
        sys.stderr.write(f"session {session_id}\n")
    try:
        with _display(as_json) as show:
            ended = _until_output(client, session_id, show, as_json=as_json)
        if not as_json:
            for text in client.logs(session_id, follow=True):
                sys.stdout.write(text)
                sys.stdout.flush()
        for event in client.events(session_id, after=ended) if ended is not None else ():
            _print_event(event, as_json=as_json)
    except KeyboardInterrupt:
        _interrupted(client, session_id)
    _exit_as(client.ask("GET", f"/v1/sessions/{session_id}"))


@contextmanager
def _display(as_json: bool) -> Iterator[PullDisplay]:
    if sys.stderr.isatty() and not as_json:
        with BarDisplay() as bars:
            yield bars
    else:
        yield LineDisplay()


def _until_output(client: Client, session_id: str, display: PullDisplay, *, as_json: bool) -> int | None:
    """Follow the events until the container has output to show. The last event's number; None: the session has ended."""
    for event in client.events(session_id):
        _print_event(event, as_json=as_json)
        if event.kind == "progress":
            if not as_json:
                display.show(event.data)
        elif event.kind == "transition" and not as_json and event.data["session_status"] in _HAS_OUTPUT:
            return int(event.data["seq"])
    return None


def _print_event(event: StreamEvent, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"event": event.kind, **event.data}) + "\n")
        sys.stdout.flush()
    elif event.kind == "transition":
        data = event.data
        why = f" ({data['reason']})" if data["reason"] else ""
        message = f": {harmless(data['message'])}" if data["message"] else ""
        sys.stderr.write(f"{data['to_status']}{why}{message}\n")


def _interrupted(client: Client, session_id: str) -> None:
    at_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if at_terminal and typer.confirm("\nCancel the session? (No: it goes on without you)", default=True, err=True):
        client.ask("POST", f"/v1/sessions/{session_id}/cancel", body={"why": "Ctrl-C"})
        sys.stderr.write(f"cancelled {session_id}\n")
        raise typer.Exit(INTERRUPTED_CODE)
    sys.stderr.write(f"\nthe session goes on: towline session show {session_id}\n")
    raise typer.Exit(INTERRUPTED_CODE)


def _exit_as(session: dict[str, Any]) -> None:
    """Exit as the container did; what ended otherwise is said."""
    if session["reason"] == "time-limit":
        raise typer.Exit(TIME_LIMIT_CODE)
    if session["reason"] == "exited":
        raise typer.Exit(session["exit_code"] or 0)
    sys.stderr.write(f"towline: {session['status']} ({session['reason']}): {harmless(session['message'])}\n")
    raise typer.Exit(session["exit_code"] if session["reason"] == "oom-killed" else 1)


def _lines(path: Path | None) -> list[str]:
    if path is None:
        return []
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _pairs(texts: list[str], field: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise _refused(field, f"{text!r} is not NAME=VALUE")
        pairs[key] = value
    return pairs


def _port(text: str) -> dict[str, Any]:
    ports, _, protocol = text.partition("/")
    host, _, container = ports.rpartition(":")
    try:
        return {
            "container_port": int(container),
            "host_port": int(host) if host else None,
            "protocol": protocol or "tcp",
        }
    except ValueError as error:
        raise _refused("publish", f"{text!r} is not [HOST:]CONTAINER[/udp]") from error


def _mount(text: str) -> dict[str, Any]:
    volume, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not volume or not target or mode not in ("", "ro", "rw"):
        raise _refused("volume", f"{text!r} is not VOLUME:/TARGET[:ro]")
    return {"volume": volume, "target": target, "read_only": mode == "ro"}


def _refused(field: str, problem: str) -> InvalidInputError:
    return InvalidInputError(f"refused:\n  {field}: {problem}", fields=(FieldProblem(field=field, problem=problem),))
