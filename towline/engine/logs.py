"""A container's log as bytes: what it wrote to stdout and stderr, in the order in which the engine kept it."""

import struct
from collections import deque
from collections.abc import Iterator
from typing import Final

import docker
import requests
from docker.errors import NotFound, create_api_error_from_http_exception

from towline.domain.containers import LogTail
from towline.engine.client import Engine
from towline.engine.container_calls import ask

TAIL_BYTES: Final = 1 << 20
"""What is kept of a log: with compression it stays under the 2 MB that a Temporal payload may have."""

_TAIL_ENTRIES: Final = 50_000
"""The engine counts tails in entries, and takes some 10 µs for each: a log of millions of lines is not read whole."""

_ENTRY_BYTES: Final = 1 << 14
"""An entry is a line, or so much of a longer one."""

_CHUNK_BYTES: Final = 1 << 16
_TAIL_TIMEOUT_SECONDS: Final = 60.0
_HEADER: Final = struct.Struct(">4xL")


class Demultiplexer:
    """Takes the headers out of a log's stream (8 bytes each: stream, 3 zeros, length), wherever it was cut into chunks."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def feed(self, chunk: bytes) -> bytes:
        """The container's own bytes in the stream's next `chunk`."""
        pieces: list[bytes] = []
        at = 0
        while at < len(chunk):
            if self._left:
                piece = chunk[at : at + self._left]
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
                continue
            missing = _HEADER.size - len(self._header)
            self._header += chunk[at : at + missing]
            at += missing
            if len(self._header) == _HEADER.size:
                (self._left,) = _HEADER.unpack(self._header)
                self._header = b""
        return b"".join(pieces)


def read_log(
    client: docker.APIClient, container_id: str, *, tty: bool, follow: bool = False, entries: int | None = None
) -> Iterator[bytes]:
    """The log's bytes, each chunk as soon as it comes; an empty one says that the log is open. `entries`: only so many, the last ones. Raises `APIError`.

    The SDK's own reader serves a terminal's log byte by byte.
    """
    url = f"{client.base_url}/v{client.api_version}/containers/{container_id}/logs"
    parameters = {"stdout": 1, "stderr": 1, "follow": int(follow), "tail": "all" if entries is None else entries}
    # A log that is followed may be silent for ever.
    timeout = (client.timeout, None) if follow else client.timeout
    with client.get(url, params=parameters, stream=True, timeout=timeout) as response:
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            create_api_error_from_http_exception(error)
        yield b""
        chunks = response.iter_content(_CHUNK_BYTES)
        yield from chunks if tty else map(Demultiplexer().feed, chunks)


async def tail_of(engine: Engine, container_id: str, *, tty: bool) -> LogTail:
    """The last bytes that the container wrote. Empty where there is no such container.

    `total_bytes` is exact for logs of up to 50,000 lines, and a lower bound beyond that.
    """
    return await ask(engine, lambda client: _tail(client, container_id, tty=tty), timeout_seconds=_TAIL_TIMEOUT_SECONDS)


def _tail(client: docker.APIClient, container_id: str, *, tty: bool) -> LogTail:
    kept: deque[bytes] = deque()
    kept_bytes = total_bytes = lines = 0
    try:
        for chunk in read_log(client, container_id, tty=tty, entries=_TAIL_ENTRIES):
            kept.append(chunk)
            kept_bytes += len(chunk)
            total_bytes += len(chunk)
            lines += chunk.count(b"\n")
            while kept_bytes - len(kept[0]) >= TAIL_BYTES:
                kept_bytes -= len(kept.popleft())
    except NotFound:
        return LogTail()
    # With as many entries as were asked for, there may have been more before them.
    is_whole = lines + total_bytes // _ENTRY_BYTES + 1 < _TAIL_ENTRIES
    return LogTail.of(b"".join(kept)[-TAIL_BYTES:], total_bytes=total_bytes if is_whole else total_bytes + 1)
