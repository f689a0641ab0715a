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

_TAIL_ENTRIES: Final = (2_000, 50_000)
"""The engine counts tails in entries (lines, or 16 KiB of a line) and takes some 20 µs for each. So a few are asked for
first, and many only where those few are short; a log of millions of lines is never read whole."""

_CHUNK_BYTES: Final = 1 << 16
_TAIL_TIMEOUT_SECONDS: Final = 60.0


class Demultiplexer:
    """Takes the headers out of a log's stream (8 bytes each: stream, 3 zeros, length), wherever it was cut into chunks."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self.frames = 0

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
                self.frames += 1
        return b"".join(pieces)


_HEADER: Final = struct.Struct(">4xL")


def open_log(
    client: docker.APIClient, container_id: str, *, follow: bool, entries: int | None = None
) -> requests.Response:
    """The log's stream, to be read with `chunks_of`. `entries`: only so many, the last ones. Raises `APIError`.

    The SDK's own reader serves a terminal's log byte by byte.
    """
    url = f"{client.base_url}/v{client.api_version}/containers/{container_id}/logs"
    parameters = {"stdout": 1, "stderr": 1, "follow": int(follow), "tail": "all" if entries is None else entries}
    # A log that is followed may be silent for ever.
    timeout = (client.timeout, None) if follow else client.timeout
    response = client.get(url, params=parameters, stream=True, timeout=timeout)
    try:
        response.raise_for_status()
    except requests.HTTPError as error:
        create_api_error_from_http_exception(error)
    return response


def chunks_of(response: requests.Response) -> Iterator[bytes]:
    """The stream's raw chunks, each as soon as it comes."""
    return response.iter_content(_CHUNK_BYTES)


async def tail_of(engine: Engine, container_id: str, *, tty: bool) -> LogTail:
    """The last bytes that the container wrote. Empty where there is no such container.

    `total_bytes` is exact for logs of up to 50,000 lines, and a lower bound beyond that.
    """
    return await ask(
        engine, lambda client: _tail(client, container_id, tty=tty), timeout_seconds=_TAIL_TIMEOUT_SECONDS
    )


def _tail(client: docker.APIClient, container_id: str, *, tty: bool) -> LogTail:
    for entries in _TAIL_ENTRIES:
        try:
            response = open_log(client, container_id, follow=False, entries=entries)
        except NotFound:
            return LogTail()
        with response:
            data, total_bytes, is_whole = _last_bytes(response, entries, tty=tty)
        if is_whole or total_bytes >= TAIL_BYTES:
            break
    return LogTail.of(data, total_bytes=total_bytes if is_whole else total_bytes + 1)
