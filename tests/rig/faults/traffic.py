"""What went through: each request with the bytes that its client really took."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

_DIGEST: Final = re.compile(r"/blobs/(sha256:[0-9a-f]{64})$")


class Ending(StrEnum):
    """How an exchange ended; `OPEN` while it has not."""

    OPEN = "open"
    DONE = "done"
    CUT = "cut"
    CLIENT_LEFT = "client-left"
    UPSTREAM_FAILED = "upstream-failed"


@dataclass(kw_only=True)
class Exchange:
    """A request and its answer. Times are of `time.monotonic()`, in seconds; `body_bytes` are those handed to the client."""

    number: int
    method: str
    path: str
    range: str
    authorized: bool
    started_at: float
    status: int = 0
    body_bytes: int = 0
    last_byte_at: float | None = None
    ended_at: float | None = None
    ending: Ending = Ending.OPEN

    @property
    def digest(self) -> str | None:
        """Of the blob that is asked for."""
        found = _DIGEST.search(self.path)
        return found.group(1) if found else None

    def sent(self, size_bytes: int) -> None:
        """Count bytes that the client has taken."""
        self.body_bytes += size_bytes
        self.last_byte_at = time.monotonic()

    def end(self, ending: Ending) -> None:
        """Close it; the first ending stays."""
        if self.ending is Ending.OPEN:
            self.ending, self.ended_at = ending, time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A moment's copy of all exchanges, oldest first."""

    exchanges: tuple[Exchange, ...]

    @classmethod
    def of_all(cls, exchanges: Iterable[Exchange]) -> Self:
        """Copy them, so that the counts stand still."""
        return cls(exchanges=tuple(replace(exchange) for exchange in exchanges))

    @property
    def body_bytes(self) -> int:
        """Taken by clients in all."""
        return sum(exchange.body_bytes for exchange in self.exchanges)

    @property
    def open(self) -> tuple[Exchange, ...]:
        """Those in flight."""
        return tuple(exchange for exchange in self.exchanges if exchange.ending is Ending.OPEN)

    def of(self, *, method: str | None = None, digest: str | None = None, path_part: str = "") -> tuple[Exchange, ...]:
        """Those that fit all that is given."""
        return tuple(
            exchange
            for exchange in self.exchanges
            if (method is None or exchange.method == method)
            and (digest is None or exchange.digest == digest)
            and path_part in exchange.path
        )

    def bytes_by_path(self) -> dict[str, int]:
        """Body bytes by URL path."""
        return self._bytes_by(lambda exchange: exchange.path)

    def bytes_by_digest(self) -> dict[str, int]:
        """Body bytes by the digest of the blob."""
        return self._bytes_by(lambda exchange: exchange.digest)

    def as_json(self) -> dict[str, Any]:
        """For a shell: the sums, then the requests."""
        return {
            "body_bytes": self.body_bytes,
            "open": len(self.open),
            "bytes_by_path": self.bytes_by_path(),
            "requests": [asdict(exchange) for exchange in self.exchanges],
        }

    def _bytes_by(self, key_of: Callable[[Exchange], str | None]) -> dict[str, int]:
        sums: defaultdict[str, int] = defaultdict(int)
        for exchange in self.exchanges:
            key = key_of(exchange)
            if key is not None:
                sums[key] += exchange.body_bytes
        return dict(sums)
