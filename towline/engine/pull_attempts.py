"""One pull from its first question to its end: planned, watched, judged, retried within bounds."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from towline.domain.ids import new_id
from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullPhase, PullProgress, Verdict
from towline.domain.pulling import PullOutcome, PullReport
from towline.domain.pulls.plan import PullPlan
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds
from towline.domain.pulls.tracker import Carried, PullTracker
from towline.engine.client import Engine
from towline.engine.failures import pull_failure
from towline.engine.pull_plans import PullPlanner
from towline.engine.pull_stream import PullRequest, PullStream, StreamEnd
from towline.engine.shared_pulls import Slot
from towline.errors import EngineError, PullError

_log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.5
_PROBE_AFTER_SECONDS: Final = 8.0
_PROBE_EVERY_SECONDS: Final = 5.0
_ENGINE_PATIENCE_SECONDS: Final = 120.0
_BACK_OFF_SECONDS: Final = 2.0
_BACK_OFF_MAX_SECONDS: Final = 60.0
_RETRY_AFTER_MAX_SECONDS: Final = 900.0
"""A registry that wants to be left alone for longer is not waited for."""


@dataclass(frozen=True, kw_only=True)
class PullWork:
    """What to pull: by its digest where `ref` names one; `platform` as it was asked for, None for the engine's own."""

    ref: ImageRef
    shown_as: str
    platform: str | None
    store: StoreKind


@dataclass(frozen=True, kw_only=True)
class PullSettings:
    """How an agent pulls. `attempts_max` attempts of ours; the engine's own tries within them are not multiplied."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    attempts_max: int = 3


class Pull:
    """One pull. `progress` may be asked at any time; `run` once."""

    def __init__(
        self, engine: Engine, planner: PullPlanner, agent_id: str, work: PullWork, settings: PullSettings
    ) -> None:
        self.id: Final = new_id("pull")
        self.image: Final = work.shown_as
        self._engine = engine
        self._planner = planner
        self._agent_id = agent_id
        self._work = work
        self._settings = settings
        self._started_at = datetime.now(UTC)
        self._attempt = 1
        self._plan: PullPlan | None = None
        self._resolving = True
        self._carried = Carried()
        self._tracker = self._new_tracker()

    @property
    def bytes_move(self) -> bool:
        """Whether it holds download slots of the engine now."""
        return self._tracker.fold.phase is PullPhase.DOWNLOADING

    def progress(self, *, waiters: int, queue_position: int | None, behind: str | None) -> PullProgress:
        """The pull at this instant."""
        progress = self._tracker.progress(
            time.monotonic(), datetime.now(UTC), waiters=waiters, queue_position=queue_position, behind=behind
        )
        if self._resolving:
            return replace(progress, phase=PullPhase.RESOLVING, verdict=Verdict.HEALTHY, verdict_reason="")
        return progress

    async def run(self, slot: Slot, on_change: Callable[[], None]) -> PullReport:
        """Pull. `on_change` is called about every `TICK_SECONDS`, also while nothing changes: a stall grows.

        Raises `EngineError` with the reason of the last attempt, not retryable: whatever could be tried again has been.
        """
        try:
            async with _beside(_every(TICK_SECONDS, on_change)):
                await self._run_attempts(slot, on_change)
        except EngineError as error:
            error.report = self._report(PullOutcome.FAILED, error)
            raise
        on_change()
        return self._report(PullOutcome.SUCCEEDED, None)

    async def _run_attempts(self, slot: Slot, on_change: Callable[[], None]) -> None:
        while True:
            try:
                await self._prepare()
                async with slot():
                    failure = await self._attempt_once(on_change)
            except EngineError as error:
                failure = error
            if failure is None:
                return
            self._resolving = False
            wait_seconds = await self._pause_before_next(failure)
            if wait_seconds is None:
                raise self._given_up(failure)
            self._carried = self._tracker.carry()
            await self._back_off(failure, wait_seconds)
            self._attempt += 1

    async def _prepare(self) -> None:
        if self._plan is None and self._work.ref.digest is not None:
            # Without a digest the registry could not be asked a moment ago.
            platform = self._work.platform or await self._engine.platform()
            self._plan = await self._planner.plan(self._work.ref, platform)
        await self._check_space()
        self._tracker = self._new_tracker()
        self._resolving = False

    def _given_up(self, failure: EngineError) -> EngineError:
        if not failure.retryable:
            return failure
        own, tries = self._attempt, self._tracker.fold.engine_retries
        counted = f"{own} attempt{'s' * (own > 1)}" + (f" and {tries} more of the engine's own" if tries else "")
        return PullError(f"{failure.message}; given up after {counted}", reason=failure.reason, retryable=False)

    def _new_tracker(self) -> PullTracker:
        return PullTracker(
            pull_id=self.id,
            image=self.image,
            agent_id=self._agent_id,
            plan=self._plan,
            store=self._work.store,
            thresholds=self._settings.thresholds,
            started_at=self._started_at,
            attempt=self._attempt,
            attempts_max=self._settings.attempts_max,
            carried=self._carried,
        )

    def _report(self, outcome: PullOutcome, error: EngineError | None) -> PullReport:
        progress = self.progress(waiters=0, queue_position=None, behind=None)
        return PullReport(
            pull_id=self.id,
            agent_id=self._agent_id,
            image=self.image,
            digest=self._work.ref.digest or self._tracker.fold.digest,
            started_at=self._started_at,
            ended_at=datetime.now(UTC),
            outcome=outcome,
            reason=error.reason if error else None,
            message=error.message if error else "",
            bytes_pulled=progress.bytes_done,
            bytes_present=progress.bytes_present,
            retried_bytes=progress.retried_bytes,
            attempts=self._attempt,
        )

    async def _attempt_once(self, on_change: Callable[[], None]) -> EngineError | None:
        """The failure of one attempt, None after success."""
        api_version = await self._engine.api_version()
        credential = await self._planner.credential(self._work.ref)
        request = PullRequest(
            repository=self._work.ref.name,
            reference=self._work.ref.digest or self._work.ref.tag or "latest",
            platform=self._work.platform,
            credential=credential.for_engine() if credential else None,
        )
        tracker = self._tracker
        stream = PullStream(self._engine.url, api_version, request)
        reading = asyncio.create_task(stream.run(lambda message: tracker.feed(message, time.monotonic())))
        try:
            async with _beside(self._probe(tracker)):
                failure = await self._watch(reading, on_change)
        finally:
            # Whatever happened, nothing is pulled for us behind our back.
            reading.cancel()
            await asyncio.wait({reading})
        return failure if failure is not None else self._failure_of(reading.result())

    async def _watch(self, reading: "asyncio.Task[StreamEnd]", on_change: Callable[[], None]) -> EngineError | None:
        deadline = self._settings.thresholds.deadline_seconds(self._plan.bytes_to_pull if self._plan else None)
        begun = time.monotonic()
        while not reading.done():
            await asyncio.wait({reading}, timeout=TICK_SECONDS)
            now = time.monotonic()
            verdict = self._tracker.should_abort(now)
            if verdict is not None and not reading.done():
                on_change()  # Seen for what it is before it is acted upon.
                return self._stalled(verdict)
            if deadline is not None and now - begun > deadline and not reading.done():
                return PullError(
                    f"{self.image}: not pulled within {deadline:.0f} s, the deadline for its size",
                    reason=Reason.PULL_DEADLINE,
                    retryable=False,
                )
        return None

    def _stalled(self, verdict: Verdict) -> PullError:
        progress = self.progress(waiters=0, queue_position=None, behind=None)
        reason = Reason.ENGINE_UNRESPONSIVE if verdict is Verdict.DAEMON_UNRESPONSIVE else Reason.PULL_STALLED
        return PullError(f"{self.image}: {verdict}. {progress.verdict_reason}", reason=reason, retryable=True)

    def _failure_of(self, end: StreamEnd) -> EngineError | None:
        tracker = self._tracker
        if tracker.succeeded:
            return None
        if tracker.failure_text is not None:
            failure = pull_failure(tracker.failure_text, image=self.image)
            if failure.reason is Reason.UNAUTHORIZED and tracker.fold.totals().bytes_done:
                # Whoever could read some of it may read the rest: a token has expired on the way.
                failure.retryable = True
            return failure
        if end.status is not None and end.text is not None:
            return pull_failure(end.text, image=self.image)
        if self._work.store is StoreKind.PODMAN and not end.broken:
            # Podman says nothing at the end; whether the image is there is for `inspect` to say.
            tracker.confirm()
            return None
        said = f" ({end.text})" if end.text else ""
        return PullError(
            f"{self.image}: the engine ended the pull without a word{said}; it may have been restarted",
            reason=Reason.ENGINE_UNAVAILABLE,
            retryable=True,
        )

    async def _probe(self, tracker: PullTracker) -> None:
        """Only where nothing moves: a healthy pull proves by itself that the engine lives."""
        begun = time.monotonic()
        while True:
            await asyncio.sleep(_PROBE_EVERY_SECONDS)
            changed_at = tracker.fold.last_change_at
            silent = time.monotonic() - (begun if changed_at is None else changed_at)
            tracker.daemon_unresponsive = silent > _PROBE_AFTER_SECONDS and not await self._engine.responds()

    async def _pause_before_next(self, failure: EngineError) -> float | None:
        """Seconds until the next attempt; None where there is none."""
        if not failure.retryable or self._attempt >= self._settings.attempts_max:
            return None
        if self._tracker.failure_text is not None and self._tracker.fold.engine_retries:
            # The engine has made its own tries, for a minute and more. Ours would multiply them.
            return None
        asked = await self._planner.retry_after(self._work.ref) if failure.reason is Reason.RATE_LIMITED else None
        if asked is None:
            return min(_BACK_OFF_SECONDS * 2.0 ** (self._attempt - 1), _BACK_OFF_MAX_SECONDS)
        return asked if asked <= _RETRY_AFTER_MAX_SECONDS else None

    async def _back_off(self, failure: EngineError, seconds: float) -> None:
        """Wait, and then for the engine, if that is away."""
        self._tracker.back_off(time.monotonic() + seconds, failure.message)
        await asyncio.sleep(seconds)
        gives_up = time.monotonic() + _ENGINE_PATIENCE_SECONDS
        while not await self._engine.responds() and time.monotonic() < gives_up:
            self._tracker.back_off(time.monotonic(), f"The engine does not answer. {failure.message}")
            await asyncio.sleep(TICK_SECONDS)

    async def _check_space(self) -> None:
        free = await self._engine.free_bytes()
        if self._plan is None or free is None or free >= self._plan.bytes_to_pull:
            return
        raise PullError(
            f"{self.image}: needs {self._plan.bytes_to_pull} bytes and the agent's disk has {free} left; "
            "free space on the agent, or unload images",
            reason=Reason.NO_SPACE,
            retryable=False,
        )


async def _every(seconds: float, act: Callable[[], None]) -> None:
    while True:
        act()
        await asyncio.sleep(seconds)


@asynccontextmanager
async def _beside(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run endless `work` beside the body. Should it fail, it is said; the body is not disturbed."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("what accompanies a pull has failed", exc_info=error)
