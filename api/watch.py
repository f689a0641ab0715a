"""Watching sessions: one poller per watched session, however many viewers.

Postgres says when a session has new events; while it pulls, its progress is read from Temporal every `POLL_SECONDS`. Viewers
share what was read, encoded once, and hold no connection; one that is slow misses intermediate progress, never an event.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api.board import Board, frame
from api.live_pulls import POLL_SECONDS, PullWatch, SharedProgress
from api.schemas.answers import PROGRESS
from towline.domain.lifecycle import FINAL, Status
from towline.domain.progress import PullProgress
from towline.store.database import Database
from towline.store.notify import listen
from towline.store.sessions import list_events
from towline.store.views import EventView

_log = logging.getLogger(__name__)
PING_SECONDS: Final = 15
"""An event stream gives a sign of life so often."""

_LOOK_EVERY_SECONDS: Final = 10.0
"""The look behind the notifications."""


class Watched(Board):
    """A session with viewers. `events` from the first on; `pulls` by agent, empty while nothing is pulled; `progress`: they as
    frames of an event stream."""

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.session_id: Final = session_id
        self.events: list[EventView] = []
        self.pulls: dict[str, PullProgress] = {}
        self.progress: list[bytes] = []

    @property
    def status(self) -> Status:
        """The status after the newest event."""
        return self.events[-1].session_status if self.events else Status.PENDING

    @property
    def is_over(self) -> bool:
        """The session has ended."""
        return self.status in FINAL

    def publish(self, events: list[EventView], pulls: dict[str, PullProgress]) -> None:
        """Take what was read, and wake the viewers if it is new."""
        if not events and pulls == self.pulls and self.version:
            return
        with self.changing():
            self.events += events
            self.pulls = pulls
            self.progress = [frame("progress", PROGRESS.dump_json(pull)) for pull in pulls.values()]


class Watch:
    """Every watched session of this process."""

    def __init__(self, database: Database, progress: SharedProgress, pulls: PullWatch, listen_url: str) -> None:
        self._database = database
        self._progress = progress
        self._pulls = pulls
        self._listen_url = listen_url
        self._watched: dict[str, Watched] = {}
        self._pollers: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Listen for new events until cancelled."""
        async for session_id in listen(self._listen_url):
            self._pulls.wake()
            for watched in self._watched.values():
                if session_id in (None, watched.session_id):
                    watched.wake.set()

    @asynccontextmanager
    async def viewer(self, session_id: str) -> AsyncIterator[Watched]:
        """Watch a session for as long as the block lasts."""
        watched = self._watched.setdefault(session_id, Watched(session_id))
        watched.viewers += 1
        if session_id not in self._pollers:
            self._pollers[session_id] = asyncio.create_task(self._poll(watched))
        try:
            yield watched
        finally:
            watched.viewers -= 1
            if not watched.viewers:
                self._watched.pop(session_id, None)
                self._pollers.pop(session_id).cancel()

    async def _poll(self, watched: Watched) -> None:
        clock = asyncio.get_running_loop().time
        next_look = clock()
        while not watched.is_over:
            try:
                if watched.wake.is_set() or clock() >= next_look:
                    watched.wake.clear()
                    # A look that fails is due again at once.
                    next_look = clock()
                    await self._read(watched)
                    next_look = clock() + _LOOK_EVERY_SECONDS
                elif watched.status is Status.PULLING:
                    watched.publish([], await self._progress.of(watched.session_id))
            except (SQLAlchemyError, OSError) as error:
                _log.warning("cannot read the events of %s now: %s", watched.session_id, error)
            except Exception:
                # A poller that ends would leave its viewers waiting for ever.
                _log.exception("reading %s failed in a way that it should not; tried again", watched.session_id)
            pause = POLL_SECONDS if watched.status is Status.PULLING else max(POLL_SECONDS, next_look - clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await watched.wake.wait()

    async def _read(self, watched: Watched) -> None:
        after = watched.events[-1].seq if watched.events else 0
        async with self._database.transaction() as tx:
            events = await list_events(tx, watched.session_id, after=after)
        status = events[-1].session_status if events else watched.status
        pulls = await self._progress.of(watched.session_id) if status is Status.PULLING else {}
        watched.publish(events, pulls)
