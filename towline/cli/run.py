"""`towline run`: a session from request to exit code, with the pull to be seen."""

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from towline.cli import options
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
    image: options.Image,
    command: options.Command = None,
    name: options.Name = None,
    interactive: options.Interactive = False,
    env: options.Env = None,
    env_file: options.EnvFile = None,
    cpus: options.Cpus = 1.0,
    memory: options.Memory = "512m",
    gpus: options.Gpus = 0,
    shm: options.Shm = None,
    kernels: options.Kernels = 1,
    multi_agent: options.MultiAgent = False,
    pull_policy: options.PullPolicy = "if-not-present",
    allow_stale: options.AllowStale = False,
    network: options.Network = "bridge",
    publish: options.Publish = None,
    volume: options.Volume = None,
    label: options.Label = None,
    agent: options.Agent = None,
    priority: options.Priority = 10,
    time_limit: options.TimeLimit = None,
    pull_deadline: options.PullDeadline = None,
    stop_grace: options.StopGrace = 10.0,
    platform: options.Platform = None,
    entrypoint: options.Entrypoint = None,
    workdir: options.Workdir = None,
    tty: options.Tty = False,
    detach: options.Detach = False,
    as_json: options.AsJson = False,
) -> None:
    """Run a command in a container: shows the pull, streams the logs, exits with the container's exit code."""
    body = _body(locals())
    client = Client()
    # A key of its own lets a lost answer be asked for again without a second session.
    made = client.ask("POST", "/v1/sessions", body=body, headers={"Idempotency-Key": uuid.uuid4().hex})
    if detach:
        sys.stdout.write((json.dumps(made) if as_json else made["id"]) + "\n")
        return
    _attend(client, made["id"], as_json=as_json)


def _body(given: dict[str, Any]) -> dict[str, Any]:
    """The request, from the options by their names."""
    words = given["command"] or []
    return {
        "image": given["image"],
        "kind": "interactive" if given["interactive"] else "batch",
        "name": given["name"],
        "command": (words[1:] if words[:1] == ["--"] else words) or None,
        "entrypoint": [given["entrypoint"]] if given["entrypoint"] else None,
        "working_dir": given["workdir"],
        "tty": given["tty"],
        "env": _pairs(_lines(given["env_file"]) + (given["env"] or []), "env"),
        "resources": {"cpu": given["cpus"], "memory": given["memory"], "gpu": given["gpus"], "shm": given["shm"]},
        "kernels": given["kernels"],
        "cluster_mode": "multi-agent" if given["multi_agent"] else "single-agent",
        "pull_policy": given["pull_policy"],
        "allow_stale": given["allow_stale"],
        "network": given["network"],
        "ports": [_port(text) for text in given["publish"] or ()],
        "mounts": [_mount(text) for text in given["volume"] or ()],
        "labels": _pairs(given["label"] or [], "label"),
        "agent": given["agent"],
        "priority": given["priority"],
        "time_limit": given["time_limit"],
        "pull_deadline": given["pull_deadline"],
        "stop_grace": given["stop_grace"],
        "platform": given["platform"],
    }


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
