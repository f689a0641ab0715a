"""Reading live logs in pages: one stream per container however many read it, kept while somebody does."""

import asyncio
import contextlib
import threading
import time
from typing import Final

import requests
from docker.errors import DockerException
from urllib3.exceptions import HTTPError

from towline.domain.containers import LogPage, LogTail
from towline.engine.client import Engine
from towline.engine.connection import OwnedSockets, abortable_client

_WINDOW_BYTES: Final = 8 << 20
_IDLE_SECONDS: Final = 30.0
_WAIT_SECONDS: Final = 1.0


class _Follower:
    """One container's stream. Keeps the last `_WINDOW_BYTES`; offsets count from the log's first byte."""

    def __init__(self, url: str, api_version: str, container_id: str) -> None:
        self._client, self._sockets = abortable_client(url, api_version)
        self._container_id = container_id
        self._lock = threading.Lock()
        self._data = bytearray()
        self._start = 0
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.ended = False
        self.used_at = time.monotonic()
        threading.Thread(target=self._read, name="log", daemon=True).start()

    @property
    def sockets(self) -> OwnedSockets:
        return self._sockets

    async def page(self, offset: int, limit_bytes: int) -> LogPage:
        self.used_at = time.monotonic()
        if not self._has(offset) and not self.ended:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _WAIT_SECONDS)
        ended = self.ended
        with self._lock:
            begin = max(offset, self._start)
            data = bytes(self._data[begin - self._start : begin - self._start + limit_bytes])
            at_end = begin + len(data) >= self._start + len(self._data)
        packed = LogTail.of(data, total_bytes=len(data)).packed
        return LogPage(packed=packed, next_offset=begin + len(data), ended=ended and at_end)

    def _has(self, offset: int) -> bool:
        with self._lock:
            return offset < self._start + len(self._data)

    def _read(self) -> None:
        try:
            stream = self._client.logs(self._container_id, stdout=True, stderr=True, stream=True, follow=True)
            for chunk in stream:
                self._take(chunk)
        except (DockerException, requests.RequestException, HTTPError, OSError, ValueError):
            # The container or the engine is gone, or nobody reads any more: for the reader the log ends here.
            pass
        finally:
            self._client.close()
            self.ended = True
            with contextlib.suppress(RuntimeError):  # The process is stopping, and its loop with it.
                self._loop.call_soon_threadsafe(self._news.set)

    def _take(self, chunk: bytes) -> None:
        with self._lock:
            self._data += chunk
            surplus = len(self._data) - _WINDOW_BYTES
            if surplus > 0:
                del self._data[:surplus]
                self._start += surplus
        self._loop.call_soon_threadsafe(self._news.set)


class LogFollowers:
    """The followed logs of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._followers: dict[str, _Follower] = {}

    async def page(self, container_id: str, offset: int, limit_bytes: int) -> LogPage:
        """The bytes from `offset` on; waits up to a second for the first of them. What has left the window is skipped."""
        self._let_go()
        follower = self._followers.get(container_id)
        if follower is None:
            version = await self._engine.api_version()
            follower = self._followers.setdefault(container_id, _Follower(self._engine.url, version, container_id))
        return await follower.page(offset, limit_bytes)

    def _let_go(self) -> None:
        now = time.monotonic()
        for container_id, follower in list(self._followers.items()):
            if now - follower.used_at > _IDLE_SECONDS:
                follower.sockets.abort()
                del self._followers[container_id]
