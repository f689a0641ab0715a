"""Pulls with their progress, once or live: each is read once for all who look, however many they are.

Records say which pulls run and who waits; progress comes from the heartbeats of one waiter. Viewers with the same view of
the fleet (a user, or a superadmin) share a poller, and all pollers share what they have read of a session.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api.board import Board, frame
from api.orchestrator import Orchestrator
from api.schemas.answers import PullAnswer
from towline.domain.progress import PullProgress
from towline.domain.pulling import PullOutcome, WaitOutcome
from towline.store.database import Database
from towline.store.pulls import get_pull, list_pulls
from towline.store.views import PullView

_log = logging.getLogger(__name__)
POLL_SECONDS: Final = 0.5
_SHARED_SECONDS: Final = 0.25
"""So long an answer of Temporal's serves others who ask the same."""

_LOOK_EVERY_SECONDS: Final = 10.0
"""The look behind the notifications, while nothing is pulled."""

_SHOWN_MAX: Final = 1000
_ENDED_KEPT: Final = 200


class SharedProgress:
    """The progress of sessions' pulls, asked for once by all who ask at about the same time."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._asked: dict[str, tuple[float, asyncio.Task[dict[str, PullProgress]]]] = {}

    async def of(self, session_id: str) -> dict[str, PullProgress]:
        """By agent, as `Orchestrator.pulls`."""
        now = asyncio.get_running_loop().time()
        known = self._asked.get(session_id)
        if known is None or (known[1].done() and now - known[0] > _SHARED_SECONDS):
            self._forget(now)
            self._asked.pop(session_id, None)
            known = self._asked[session_id] = (now, asyncio.create_task(self._orchestrator.pulls(session_id)))
        # One who leaves must not take the answer from the others.
        return await asyncio.shield(known[1])

    def _forget(self, now: float) -> None:
        """Drop what is too old to share; the oldest is first."""
        while self._asked:
            session_id, (asked_at, task) = next(iter(self._asked.items()))
            if not task.done() or now - asked_at <= _SHARED_SECONDS:
                return
            del self._asked[session_id]


class PullReader:
    """Pulls as they are now. `scope`: whose pulls, by user id; None for all."""

    def __init__(self, database: Database, progress: SharedProgress) -> None:
        self._database = database
        self._progress = progress

    async def find(self, scope: str | None, *, outcome: PullOutcome | None, limit: int) -> list[PullAnswer]:
        """Newest first."""
        async with self._database.transaction() as tx:
            views = await list_pulls(tx, owner_id=scope, outcome=outcome, limit=limit)
        return await self.with_progress(views)

    async def get(self, pull_id: str, scope: str | None) -> PullAnswer | None:
        """One pull; None where there is none, or it is not theirs to see."""
        async with self._database.transaction() as tx:
            view = await get_pull(tx, pull_id, owner_id=scope)
        return None if view is None else (await self.with_progress([view]))[0]

    async def with_progress(self, views: Sequence[PullView]) -> list[PullAnswer]:
        """The views with what the heartbeats of one of their waiters say."""
        live = await asyncio.gather(*(self._progress_of(view) for view in views))
        return [
            PullAnswer.model_validate(view).model_copy(update={"progress": progress})
            for view, progress in zip(views, live, strict=True)
        ]

    async def _progress_of(self, view: PullView) -> PullProgress | None:
        if view.outcome is not PullOutcome.RUNNING:
            return None
        for wait in view.waits:
            if wait.outcome is WaitOutcome.WAITING:
                found = (await self._progress.of(wait.session_id)).get(view.agent_id)
                if found is not None and found.pull_id == view.id:
                    return found
        return None


class LivePulls(Board):
    """The pulls in flight as one scope sees them. `frames`: each as an event of a stream. `ended`: those that were in flight,
    the last ones, with their accounts."""

    def __init__(self, scope: str | None) -> None:
        super().__init__()
        self.scope: Final = scope
        self.running: dict[str, PullAnswer] = {}
        self.frames: dict[str, bytes] = {}
        self.ended: deque[PullAnswer] = deque(maxlen=_ENDED_KEPT)

    def publish(self, running: dict[str, PullAnswer], ended: Sequence[PullAnswer]) -> None:
        """Take what was read, and wake the viewers if it is new."""
        if running == self.running and not ended and self.version:
            return
        with self.changing():
            self.frames = {
                pull_id: self.frames[pull_id]
                if self.running.get(pull_id) == pull
                else frame("progress", pull.model_dump_json().encode())
                for pull_id, pull in running.items()
            }
            self.running = running
            self.ended.extend(ended)


class PullWatch:
    """Every scope that is being watched in this process, with one poller each."""

    def __init__(self, reader: PullReader) -> None:
        self._reader = reader
        self._live: dict[str | None, LivePulls] = {}
        self._pollers: dict[str | None, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Something has happened to some session."""
        for live in self._live.values():
            live.wake.set()

    @asynccontextmanager
    async def viewer(self, scope: str | None) -> AsyncIterator[LivePulls]:
        """Watch for as long as the block lasts."""
        live = self._live.setdefault(scope, LivePulls(scope))
        live.viewers += 1
        if scope not in self._pollers:
            self._pollers[scope] = asyncio.create_task(self._poll(live))
        try:
            yield live
        finally:
            live.viewers -= 1
            if not live.viewers:
                self._live.pop(scope, None)
                self._pollers.pop(scope).cancel()

    async def _poll(self, live: LivePulls) -> None:
        while True:
            live.wake.clear()
            try:
                await self._read(live)
            except (SQLAlchemyError, OSError) as error:
                _log.warning("cannot read the pulls now: %s", error)
            except Exception:
                # A poller that ends would leave its viewers waiting for ever.
                _log.exception("reading the pulls failed in a way that it should not; tried again")
            if live.running:
                await asyncio.sleep(POLL_SECONDS)
                continue
            try:
                async with asyncio.timeout(_LOOK_EVERY_SECONDS):
                    await live.wake.wait()
            except TimeoutError:
                continue

    async def _read(self, live: LivePulls) -> None:
        found = await self._reader.find(live.scope, outcome=PullOutcome.RUNNING, limit=_SHOWN_MAX)
        running = {pull.id: pull for pull in found}
        gone = [await self._reader.get(pull_id, live.scope) for pull_id in live.running if pull_id not in running]
        live.publish(running, [pull for pull in gone if pull is not None])
