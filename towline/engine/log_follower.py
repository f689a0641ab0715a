"""Reading live logs in pages, by offset.

A reader's pages come from one open stream, so each costs what it holds, and not the whole log before it. Only who asks for
an offset that no open stream is near makes the engine read the log again from its beginning, once.
"""

import asyncio
import contextlib
import logging
import threading
import time
from typing import Final

import requests
from docker.errors import DockerException
from docker.utils import version_gte
from urllib3.exceptions import HTTPError

from towline.domain.containers import LogPage, LogTail
from towline.engine.client import Engine
from towline.engine.connection import abortable_client
from towline.engine.logs import read_log

_log = logging.getLogger(__name__)

_KEPT_BEHIND_BYTES: Final = 1 << 20
"""So far apart readers can be and share a stream."""

_AHEAD_BYTES: Final = 1 << 18
"""So much is read before it is asked for; then the stream waits, and with it the engine's reader of the log's file."""

_FOLLOWS_TO_THE_END: Final = "1.42"
"""API version of Docker 23. Before it, a followed log may end before the container's last lines, which are in the log."""

_STREAMS_MAX: Final = 32
_IDLE_SECONDS: Final = 30.0
_NEWS_SECONDS: Final = 1.0
"""How long a page waits for what the container has not written yet."""

_CATCH_UP_SECONDS: Final = 8.0
"""How long it waits for what is in the log already, and comes."""


class _Follower:
    """One open stream, read in a thread of its own. Holds a window; offsets count from the log's first byte."""

    def __init__(self, url: str, api_version: str, container_id: str, *, tty: bool, running: bool) -> None:
        # Opened after the exit, it is read like any file. Followed, its end is no proof: old engines lose the last lines.
        self._is_conclusive = not running or version_gte(api_version, _FOLLOWS_TO_THE_END)
        self._client, self._sockets = abortable_client(url, api_version)
        self._container_id = container_id
        self._tty = tty
        self._data = bytearray()
        self._start = 0
        self._wanted = 0
        self._changed = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._is_open = self._is_done = self._is_broken = False
        self.read_to_end = asyncio.Event()
        self.used_at = time.monotonic()
        threading.Thread(target=self._read, name="log", daemon=True).start()

    def serves(self, offset: int, *, running: bool) -> bool:
        """Whether a reader at `offset` gets its bytes here. A stream that has ended while the container runs is broken."""
        with self._changed:
            if self._is_broken or not self._start <= offset <= self._end() + _AHEAD_BYTES:
                return False
            if self._is_done and not self._is_conclusive:
                return not running and offset < self._end()
            return not (self._is_done and running)

    async def page(self, offset: int, limit_bytes: int, *, running: bool) -> LogPage | None:
        """The bytes from `offset` on; None where another reader has drawn the window away meanwhile."""
        self.used_at = time.monotonic()
        with self._changed:
            self._wanted = max(self._wanted, offset)
            self._changed.notify_all()
        await self._wait_for(offset)
        with self._changed:
            if offset < self._start:
                return None
            data = bytes(self._data[offset - self._start : offset - self._start + limit_bytes])
            is_whole = self._is_done and self._is_conclusive and not self._is_broken
            at_end = is_whole and offset + len(data) >= self._end()
        if at_end:
            self.read_to_end.set()
        packed = LogTail.of(data, total_bytes=len(data)).packed
        return LogPage(packed=packed, next_offset=offset + len(data), ended=at_end and not running)

    def close(self) -> None:
        """Break the stream; its thread ends."""
        with self._changed:
            self._is_done = self._is_broken = True
            self._changed.notify_all()
        self._sockets.abort()

    def _end(self) -> int:
        return self._start + len(self._data)

    async def _wait_for(self, offset: int) -> None:
        begin = time.monotonic()
        while True:
            self._news.clear()
            with self._changed:
                if self._is_done or self._end() > offset:
                    return
                has_caught_up = self._is_open and self._end() == offset
            left = begin + (_NEWS_SECONDS if has_caught_up else _CATCH_UP_SECONDS) - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                return

    def _read(self) -> None:
        try:
            for chunk in read_log(self._client, self._container_id, tty=self._tty, follow=True):
                if not self._take(chunk):
                    return
        except (DockerException, requests.RequestException, HTTPError, OSError, ValueError) as error:
            _log.info("the log of %s broke off: %s", self._container_id[:12], error)
            self._is_broken = True
        finally:
            self._is_done = True
            self._client.close()
            self._tell()

    def _take(self, chunk: bytes) -> bool:
        """Keep the chunk, and wait while there is enough ahead. False: nobody wants any more."""
        with self._changed:
            self._is_open = True
            self._data += chunk
            surplus = self._wanted - _KEPT_BEHIND_BYTES - self._start
            if surplus > 0:
                dropped = min(surplus, len(self._data))
                del self._data[:dropped]
                self._start += dropped
        self._tell()
        with self._changed:
            self._changed.wait_for(lambda: self._is_done or self._end() < self._wanted + _AHEAD_BYTES)
            return not self._is_done

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # The process is stopping, and its loop with it.
            self._loop.call_soon_threadsafe(self._news.set)


class LogFollowers:
    """The followed logs of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._followers: list[tuple[str, _Follower]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def page(self, container_id: str, *, tty: bool, running: bool, offset: int, limit_bytes: int) -> LogPage:
        """The bytes from `offset` on; waits up to a second for the first of them where there is none yet.

        `running`: whether the container ran, asked before this call.
        """
        version = await self._engine.api_version()
        page = None
        while page is None:
            follower = self._near(container_id, offset, running=running)
            if follower is None:
                follower = _Follower(self._engine.url, version, container_id, tty=tty, running=running)
                self._followers.append((container_id, follower))
                self._let_go()
            page = await follower.page(offset, limit_bytes, running=running)
        return page

    def _near(self, container_id: str, offset: int, *, running: bool) -> _Follower | None:
        of_container = (follower for of, follower in self._followers if of == container_id)
        return next((one for one in of_container if one.serves(offset, running=running)), None)

    async def wait_until_read(self, container_id: str, *, patience_seconds: float) -> None:
        """Wait until who reads that log has read to its end; for so long at most."""
        lately = time.monotonic() - patience_seconds
        reading = [one for of, one in self._followers if of == container_id and one.used_at > lately]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                for one in reading:
                    await one.read_to_end.wait()

    def close(self) -> None:
        """Break all streams."""
        if self._timer is not None:
            self._timer.cancel()
        for _, follower in self._followers:
            follower.close()
        self._followers.clear()

    def _let_go(self) -> None:
        """Close what nobody has used for a while, and what is too many; look again while there are any."""
        self._followers.sort(key=lambda item: item[1].used_at)
        idle_since = time.monotonic() - _IDLE_SECONDS
        while self._followers and (len(self._followers) > _STREAMS_MAX or self._followers[0][1].used_at < idle_since):
            self._followers.pop(0)[1].close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._followers:
            self._timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._let_go)
