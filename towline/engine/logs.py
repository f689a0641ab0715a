"""The tail of a container's log."""

from collections import deque
from typing import Final

import docker
from docker.errors import NotFound

from towline.domain.containers import LogTail
from towline.engine.client import Engine

TAIL_BYTES: Final = 1 << 20
"""What is kept of a log: with compression it stays under the 2 MB that a Temporal payload may have."""

_TAIL_LINES: Final = 50_000
"""The engine counts tails in lines; this many are read at most, so that a log of gigabytes costs no more."""

_TIMEOUT_SECONDS: Final = 60.0


async def tail_of(engine: Engine, container_id: str) -> LogTail:
    """The last bytes that the container wrote, stdout and stderr as they came. Empty where there is no such container."""
    return await engine.call(lambda client: _tail(client, container_id), timeout_seconds=_TIMEOUT_SECONDS)


def _tail(client: docker.APIClient, container_id: str) -> LogTail:
    try:
        chunks = client.logs(container_id, stdout=True, stderr=True, stream=True, tail=_TAIL_LINES)
    except NotFound:
        return LogTail()
    kept: deque[bytes] = deque()
    kept_bytes = total = lines = 0
    for chunk in chunks:
        kept.append(chunk)
        kept_bytes += len(chunk)
        total += len(chunk)
        lines += chunk.count(b"\n")
        while kept_bytes - len(kept[0]) >= TAIL_BYTES:
            kept_bytes -= len(kept.popleft())
    data = b"".join(kept)[-TAIL_BYTES:]
    # With all the lines that were asked for, there may have been more before them.
    return LogTail.of(data, total_bytes=max(total, len(data) + 1) if lines >= _TAIL_LINES else total)
