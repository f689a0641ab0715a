"""The fault registry by hand: `python -m tests.rig.faults --upstream 127.0.0.1:5000 --port 5001 --throttle 10MB`."""

import re
import signal
from typing import Annotated, Final

import typer

from tests.rig.faults.admin import rule_from_json
from tests.rig.faults.kinds import Fault, Stall, Throttle
from tests.rig.faults.registry import FaultRegistry

_UNITS: Final = {"": 1, "B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?B?)", re.IGNORECASE)


def size_bytes(text: str) -> int:
    """`20kB`, `10MB`, `1.5M`, `300`: decimal units, case does not matter. Raises `typer.BadParameter`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 20kB or 10MB")
    unit = found.group(2).upper()
    return round(float(found.group(1)) * _UNITS[unit if unit in _UNITS else f"{unit}B"])


def serve(
    upstream: Annotated[str, typer.Option(help="The real registry, HOST:PORT.")],
    port: Annotated[int, typer.Option(help="Where to listen on 127.0.0.1; 0 takes a free port.")] = 0,
    throttle: Annotated[str, typer.Option(help="Bytes per second of each blob, such as 10MB.")] = "",
    total_throttle: Annotated[str, typer.Option(help="Bytes per second of all blobs together.")] = "",
    stall_after: Annotated[str, typer.Option(help="Send so much of each blob, then nothing.")] = "",
    rule: Annotated[list[str] | None, typer.Option(help="A rule in JSON; may be given several times.")] = None,
) -> None:
    """Put a registry with faults in front of a real one, until Ctrl-C."""
    # Blocked before the server's thread starts, so that no thread takes it from `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with FaultRegistry(upstream, port=port) as registry:
        for fault in _faults(throttle, total_throttle, stall_after):
            registry.on(fault, path="*/blobs/*", method="GET")
        for text in rule or ():
            registry.add(rule_from_json(text))
        typer.echo(
            f"{registry.host} → {upstream}; rules: {registry.url}/_faults/rules, counts: {registry.url}/_faults/stats"
        )
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def _faults(throttle: str, total_throttle: str, stall_after: str) -> list[Fault]:
    faults: list[Fault] = []
    if throttle or total_throttle:
        each = size_bytes(throttle) if throttle else None
        faults.append(
            Throttle(
                bytes_per_second=each, total_bytes_per_second=size_bytes(total_throttle) if total_throttle else None
            )
        )
    if stall_after:
        faults.append(Stall(after_bytes=size_bytes(stall_after)))
    return faults


if __name__ == "__main__":
    typer.run(serve)
