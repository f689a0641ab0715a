"""Ports on the loopback: free ones, and those that are taken, by name."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from towline.errors import ConflictError

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class PortClaim:
    """A port that a part will listen on. `option` is how somebody chooses another one."""

    port: int
    part: str
    option: str
    host: str = LOOPBACK


class PortTakenError(ConflictError):
    """One or more ports are in use; the message names each, its part and the option that changes it."""

    code = "port-in-use"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Like the servers do it: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def refuse_taken(claims: Iterable[PortClaim]) -> None:
    """Raise `PortTakenError` naming every claimed port that is in use, or that two parts want."""
    problems = []
    claimed: dict[int, PortClaim] = {}
    for claim in claims:
        if other := claimed.get(claim.port):
            problems.append(f"port {claim.port} is wanted by {other.part} and {claim.part}; change {claim.option}")
        elif not is_free(claim.port, claim.host):
            problems.append(f"port {claim.port} ({claim.part}) is in use; choose another with {claim.option}")
        claimed.setdefault(claim.port, claim)
    if problems:
        raise PortTakenError("\n".join(problems))
