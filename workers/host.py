"""One worker per agent on a host: held for as long as the process lives, however it ends."""

import hashlib
import socket
from pathlib import Path
from typing import Final

from towline.errors import ConflictError

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")


class HostHold:
    """`host` names what is shared by all who could hold the same: this boot of the machine, and the network namespace. Empty
    on a system that has no abstract sockets; then nothing is held."""

    def __init__(self, fleet: str, agent_id: str) -> None:
        """Raises `ConflictError` where another process holds it."""
        self._socket: socket.socket | None = None
        self.host = ""
        if not (_BOOT_ID.exists() and _NETWORK.exists()):
            return
        name = hashlib.sha256(f"{fleet}/{agent_id}".encode()).hexdigest()
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # An abstract socket has no file to be left behind: the kernel forgets it with the process, also after a SIGKILL.
            held.bind(f"\0towline-agent-{name}")
        except OSError as error:
            held.close()
            raise ConflictError(
                f"another worker on this host serves agent {agent_id}; stop it, or choose another id"
            ) from error
        self._socket = held
        self.host = f"{_BOOT_ID.read_text().strip()}/{_NETWORK.stat().st_ino}"

    def release(self) -> None:
        """Let another process have it."""
        if self._socket is not None:
            self._socket.close()
