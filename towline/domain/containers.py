"""What is asked of an agent about containers, and what it answers."""

import base64
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from towline.domain.sessions import SessionSpec


@dataclass(frozen=True, kw_only=True)
class StartContainer:
    """Create (or find, by name and labels) and start the container of one kernel from an image that is present."""

    spec: SessionSpec
    kernel: int
    agent_id: str
    image_ref: str


@dataclass(frozen=True, kw_only=True)
class StartedContainer:
    """`ports` maps `80/tcp` to the host ports that the engine published."""

    container_id: str
    started_at: datetime | None
    ports: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EndContainer:
    """Stop with grace, keep the tail of the logs, remove. `grace_seconds` 0 kills at once."""

    session_id: str
    kernel: int
    grace_seconds: float


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """The last bytes that a container wrote, stdout and stderr as they came: zlib, then base64.

    `total_bytes` is what was written in all; `truncated` says that the beginning is missing.
    """

    packed: str = ""
    total_bytes: int = 0
    truncated: bool = False

    @classmethod
    def of(cls, data: bytes, *, total_bytes: int) -> Self:
        """Pack `data`, the last bytes of `total_bytes`."""
        packed = base64.b64encode(zlib.compress(data, 6)).decode("ascii")
        return cls(packed=packed, total_bytes=total_bytes, truncated=len(data) < total_bytes)

    def data(self) -> bytes:
        """The bytes as the container wrote them."""
        return zlib.decompress(base64.b64decode(self.packed)) if self.packed else b""


@dataclass(frozen=True, kw_only=True)
class ContainerExit:
    """How a container ended; the payload of the signal `container_exited`. `exit_code` None: it was gone before we looked.

    `agent_id`: who tells; an agent that the session has left tells of a container that is not wanted any more.
    """

    kernel: int
    container_id: str | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    finished_at: datetime | None = None
    log: LogTail = field(default_factory=LogTail)
    message: str = ""
    """The engine's own error text, where it has one."""
    agent_id: str = ""


@dataclass(frozen=True, kw_only=True)
class ReadLogs:
    """One page of a live container's log: the bytes from `offset` on, at most `limit_bytes`."""

    session_id: str
    kernel: int
    offset: int = 0
    limit_bytes: int = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """`packed` as in `LogTail`; `next_offset` is where the following page begins; `ended`: the container has exited and all
    it wrote has been read; `found` False: no such container (its tail, if any, is in the records)."""

    packed: str
    next_offset: int
    ended: bool
    found: bool = True
