"""The options of `towline run`, in the manner of `docker run`, and the request that they make."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from towline.cli.client import refused
from towline.errors import FieldProblem, InvalidInputError

_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What was typed. Each field is a parameter of the command line."""

    image: Annotated[str, typer.Argument(help="The image, as in `docker run`.")]
    command: Annotated[list[str] | None, typer.Argument(help="The command; after `--`, or as it is.")] = None
    name: Annotated[str | None, typer.Option(help="A name for the session.")] = None
    interactive: Annotated[bool, typer.Option("--interactive-kind", help="A session that lives until ended.")] = False
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE; NAME alone: yours.")] = None
    env_file: Annotated[
        list[Path] | None, typer.Option(help="Lines of NAME=VALUE.", exists=True, dir_okay=False, show_default=False)
    ] = None
    cpus: Annotated[float, typer.Option(help="Cores for each kernel.")] = 1.0
    memory: Annotated[str, typer.Option("--memory", "-m", help="Memory for each kernel, such as 512m.")] = "512m"
    gpus: Annotated[int, typer.Option(help="GPUs for each kernel.")] = 0
    shm: Annotated[str | None, typer.Option("--shm-size", help="Size of /dev/shm.")] = None
    kernels: Annotated[int, typer.Option(help="How many containers.")] = 1
    multi_agent: Annotated[bool, typer.Option("--multi-agent", help="Kernels may be on several agents.")] = False
    pull_policy: Annotated[str, typer.Option("--pull-policy", "--pull", help="always, if-not-present or never.")] = (
        "if-not-present"
    )
    allow_stale: Annotated[
        bool, typer.Option("--allow-stale", help="With always: what is present, if the registry is away.")
    ] = False
    network: Annotated[str, typer.Option(help="bridge, none or host.")] = "bridge"
    publish: Annotated[
        list[str] | None, typer.Option("--publish", "-p", help="HOST:CONTAINER, or CONTAINER; with /udp for UDP.")
    ] = None
    volume: Annotated[
        list[str] | None, typer.Option("--volume", "-v", help="VOLUME:/TARGET, with :ro to only read.")
    ] = None
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="NAME=VALUE.")] = None
    agent: Annotated[str | None, typer.Option(help="Only on this agent.")] = None
    resource_group: Annotated[str | None, typer.Option(help="Only on agents of this group.")] = None
    agent_label: Annotated[list[str] | None, typer.Option(help="NAME=VALUE that the agent must have.")] = None
    starts_at: Annotated[str | None, typer.Option(help="Not before, such as 2027-01-31T18:00:00+01:00.")] = None
    depends_on: Annotated[
        list[str] | None, typer.Option(help="Not before this session has ended with exit code 0.")
    ] = None
    priority: Annotated[int, typer.Option(help="0 to 100.")] = 10
    time_limit: Annotated[str | None, typer.Option(help="How long it may run: seconds, or such as 1h30m.")] = None
    pull_deadline: Annotated[str | None, typer.Option(help="How long the pull may take.")] = None
    stop_grace: Annotated[str, typer.Option(help="How long from stop to kill.")] = "10s"
    platform: Annotated[str | None, typer.Option(help="Such as linux/arm64.")] = None
    entrypoint: Annotated[str | None, typer.Option(help="Instead of the image's.")] = None
    workdir: Annotated[str | None, typer.Option("--workdir", "-w", help="Instead of the image's.")] = None
    tty: Annotated[bool, typer.Option("--tty", "-t", help="A terminal for the command.")] = False
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the session's id and return.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False


def request_body(options: RunOptions, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The session to ask for. Raises `InvalidInputError` for what cannot be read; the rest is for the API to check."""
    words = options.command or []
    lines = [line for path in options.env_file or () for line in _lines(path)]
    return {
        "image": options.image,
        "kind": "interactive" if options.interactive else "batch",
        "name": options.name,
        "command": (words[1:] if words[:1] == ["--"] else words) or None,
        "entrypoint": [options.entrypoint] if options.entrypoint else None,
        "working_dir": options.workdir,
        "tty": options.tty,
        "env": _environment([*lines, *(options.env or ())], environment),
        "resources": {"cpu": options.cpus, "memory": options.memory, "gpu": options.gpus, "shm": options.shm},
        "kernels": options.kernels,
        "cluster_mode": "multi-agent" if options.multi_agent else "single-agent",
        "pull_policy": options.pull_policy,
        "allow_stale": options.allow_stale,
        "network": options.network,
        "ports": [_port(text) for text in options.publish or ()],
        "mounts": [_mount(text) for text in options.volume or ()],
        "labels": dict(_label(text) for text in options.label or ()),
        "agent": options.agent,
        "resource_group": options.resource_group,
        "agent_labels": dict(_label(text) for text in options.agent_label or ()),
        "starts_at": options.starts_at,
        "depends_on": options.depends_on or [],
        "priority": options.priority,
        "time_limit": None if options.time_limit is None else seconds_of("time_limit", options.time_limit),
        "pull_deadline": None if options.pull_deadline is None else seconds_of("pull_deadline", options.pull_deadline),
        "stop_grace": seconds_of("stop_grace", options.stop_grace),
        "platform": options.platform,
    }


def _lines(path: Path) -> list[str]:
    try:
        lines = (line.lstrip() for line in path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal("env_file", f"cannot be read: {error}") from error
    return [line for line in lines if line and not line.startswith("#")]


def _environment(texts: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """As Docker does it: a name alone takes the caller's value, and is left out where the caller has none."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals:
            found[name] = value
        elif name in environment:
            found[name] = environment[name]
    return found


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _port(text: str) -> dict[str, Any]:
    ports, _, protocol = text.partition("/")
    host, _, container = ports.rpartition(":")
    try:
        numbers = {"container_port": int(container), "host_port": int(host) if host else None}
    except ValueError as error:
        raise _refusal("publish", f"{text!r} is not [HOST:]CONTAINER[/udp]") from error
    return {**numbers, "protocol": protocol or "tcp"}


def _mount(text: str) -> dict[str, Any]:
    volume, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not volume or not target or mode not in ("", "ro", "rw"):
        raise _refusal("volume", f"{text!r} is not VOLUME:/TARGET[:ro]")
    return {"volume": volume, "target": target, "read_only": mode == "ro"}


def seconds_of(field: str, text: str) -> float:
    """A duration as people write it. Raises `InvalidInputError`, naming the field."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not text.strip():
        raise _refusal(field, f"{text!r} is neither seconds nor a duration such as 90s, 10m, 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _refusal(field: str, problem: str) -> InvalidInputError:
    return refused(FieldProblem(field=field, problem=problem))
