"""One request to pull, read to its end: messages in, an abort that works while the engine is silent."""

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import requests
from docker.errors import APIError, DockerException
from urllib3.exceptions import HTTPError

from towline.engine.connection import abortable_client

_log = logging.getLogger(__name__)
_LINE_MAX: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """`repository` with its registry; `reference` a tag or a digest, never empty: an engine given neither pulls all tags.

    `credential` as Docker's auth config (`username`, `password`), or None.
    """

    repository: str
    reference: str
    platform: str | None = None
    credential: Mapping[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class StreamEnd:
    """How the stream ended. `status` is the HTTP status where the engine refused before the first line, `text` its words or
    those of a broken connection; both None after an end in good order (which is no proof of success)."""

    status: int | None = None
    text: str | None = None
    broken: bool = False
    aborted: bool = False


class LineReader:
    """Splits a chunked body into JSON messages. What is not one is passed over, and said once: it never fails a pull."""

    def __init__(self) -> None:
        self._rest = b""
        self._complained = False

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that `data` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_MAX:
            self._rest = b""
        return [message for line in lines if (message := self._parse(line)) is not None]

    def end(self) -> list[dict[str, Any]]:
        """What stood in the last line, if it was whole."""
        line, self._rest = self._rest, b""
        message = self._parse(line)
        return [] if message is None else [message]

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            return message
        if not self._complained:
            self._complained = True
            _log.warning("passing over what is no message in a pull's stream: %.200r", line)
        return None


class PullStream:
    """A pull under way. The engine works for exactly as long as this connection is open."""

    def __init__(self, url: str, api_version: str, request: PullRequest) -> None:
        self._request = request
        self._client, self._sockets = abortable_client(url, api_version)

    async def run(self, on_message: Callable[[dict[str, Any]], None]) -> StreamEnd:
        """Read to the end. `on_message` runs in the event loop. Cancelled: aborts, and returns to the caller only when the
        reading thread has ended, so that no byte flows for us any more."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[StreamEnd] = loop.create_future()

        def deliver(messages: list[dict[str, Any]]) -> None:
            for message in messages:
                on_message(message)

        def read() -> None:
            # A loop that has closed meanwhile has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                try:
                    end = self._read(lambda messages: loop.call_soon_threadsafe(deliver, messages))
                except BaseException as error:
                    loop.call_soon_threadsafe(ended.set_exception, error)
                    return
                loop.call_soon_threadsafe(ended.set_result, end)

        threading.Thread(target=read, name="pull", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            self.abort()
            while not ended.done():
                # Who is impatient and cancels again gets the same answer: it is over when it is over.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({ended})
            raise

    def abort(self) -> None:
        """Break the connection; `run` returns soon after."""
        self._sockets.abort()

    def _read(self, deliver: Callable[[list[dict[str, Any]]], object]) -> StreamEnd:
        reader = LineReader()
        try:
            for chunk in self._chunks():
                # A body that is not chunked comes as text, in one piece.
                deliver(reader.feed(chunk if isinstance(chunk, bytes) else chunk.encode()))
            deliver(reader.end())
            end = StreamEnd()
        except APIError as error:
            end = StreamEnd(status=error.status_code, text=str(error.explanation or error))
        except (DockerException, requests.RequestException, HTTPError, OSError, ValueError) as error:
            # ValueError: the transport reads from a socket that the abort has taken away.
            end = StreamEnd(text=str(error), broken=True)
        finally:
            self._client.close()
        if self._sockets.aborted:
            return StreamEnd(text=end.text, aborted=True)
        return end

    def _chunks(self) -> Iterable[bytes | str]:
        chunks: Iterable[bytes | str] = self._client.pull(
            self._request.repository,
            tag=self._request.reference,
            stream=True,
            decode=False,
            platform=self._request.platform,
            # Never None: the SDK would run the host's credential helpers here, where nothing can stop them.
            auth_config=dict(self._request.credential or {}),
        )
        return chunks
