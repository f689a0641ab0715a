"""One pull from its first attempt to its end: watched, judged, retried within bounds."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from towline.domain.ids import new_id
from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullProgress, Verdict
from towline.domain.pulling import PullOutcome, PullReport
from towline.domain.pulls.plan import PullPlan
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds
from towline.domain.pulls.tracker import Carried, PullTracker
from towline.engine.client import Engine
from towline.engine.failures import pull_failure
from towline.engine.pull_stream import PullRequest, PullStream, StreamEnd
from towline.errors import EngineError, PullError

TICK_SECONDS: Final = 0.4
_PROBE_AFTER_SECONDS: Final = 8.0
_PROBE_EVERY_SECONDS: Final = 5.0
_ENGINE_PATIENCE_SECONDS: Final = 120.0
_BACK_OFF_SECONDS: Final = 2.0
_BACK_OFF_MAX_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class PullWork:
    """What to pull. `plan` None: the registry could not be asked; `digest` pins it where it is known.

    `ask_retry_after`: how long the registry wants to be left alone, in seconds. Engines do not pass that on.
    """

    ref: ImageRef
    digest: str | None
    platform: str | None
    plan: PullPlan | None
    ask_retry_after: Callable[[], Awaitable[float | None]]
    credential: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class PullSettings:
    """How an agent pulls. `attempts_max` attempts of ours; each may hold several of the engine's own."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    attempts_max: int = 3


class Pull:
    """One pull. `progress` may be asked at any time; `run` once."""

    def __init__(self, engine: Engine, agent_id: str, work: PullWork, store: StoreKind, settings: PullSettings) -> None:
        self.id: Final = new_id("pull")
        self.image: Final = work.ref.familiar
        self._engine = engine
        self._agent_id = agent_id
        self._work = work
        self._store = store
        self._settings = settings
        self._started_at = datetime.now(UTC)
        self._attempt = 1
        self._carried = Carried()
        self._attempt_begun = time.monotonic()
        self._probed_at = 0.0
        self._tracker = self._new_tracker()

    def progress(self, *, waiters: int, queue_position: int | None, behind: str | None) -> PullProgress:
        """The pull at this instant."""
        return self._tracker.progress(
            time.monotonic(), datetime.now(UTC), waiters=waiters, queue_position=queue_position, behind=behind
        )

    async def run(self, on_change: Callable[[], None]) -> PullReport:
        """Pull. `on_change` is called about every `TICK_SECONDS`. Raises `PullError` with the reason of the last attempt."""
        try:
            await self._run_attempts(on_change)
        except EngineError as error:
            error.report = self._report(PullOutcome.FAILED, error)
            raise
        return self._report(PullOutcome.SUCCEEDED, None)

    async def _run_attempts(self, on_change: Callable[[], None]) -> None:
        await self._check_space()
        while True:
            self._tracker = self._new_tracker()
            failure = await self._attempt_once(on_change)
            if failure is None:
                return
            if not failure.retryable or self._attempt >= self._settings.attempts_max:
                raise failure
            self._carried = self._tracker.carry()
            await self._back_off(failure, on_change)
            self._attempt += 1

    def _new_tracker(self) -> PullTracker:
        return PullTracker(
            pull_id=self.id,
            image=self._work.ref.familiar,
            agent_id=self._agent_id,
            plan=self._work.plan,
            store=self._store,
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
            digest=self._work.digest or self._tracker.fold.digest,
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
        request = PullRequest(
            repository=self._work.ref.name,
            reference=self._work.digest or self._work.ref.digest or self._work.ref.tag or "latest",
            platform=self._work.platform,
            credential=self._work.credential,
        )
        tracker = self._tracker
        stream = PullStream(self._engine.url, api_version, request)
        reading = asyncio.create_task(stream.run(lambda message: tracker.feed(message, time.monotonic())))
        try:
            failure = await self._watch(reading, on_change)
        finally:
            # Whatever happened, nothing is pulled for us behind our back.
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return failure if failure is not None else self._failure_of(reading.result())

    async def _watch(self, reading: "asyncio.Task[StreamEnd]", on_change: Callable[[], None]) -> EngineError | None:
        deadline = self._deadline()
        begun = self._attempt_begun = time.monotonic()
        on_change()
        while not reading.done():
            await asyncio.wait({reading}, timeout=TICK_SECONDS)
            await self._probe()
            on_change()
            now = time.monotonic()
            verdict = self._tracker.should_abort(now)
            if verdict is not None and not reading.done():
                return self._stalled(verdict)
            if deadline is not None and now - begun > deadline and not reading.done():
                return PullError(
                    f"{self._work.ref.familiar}: not pulled within {deadline:.0f} s, the deadline for its size",
                    reason=Reason.PULL_DEADLINE,
                    retryable=False,
                )
        return None

    def _deadline(self) -> float | None:
        plan = self._work.plan
        return self._settings.thresholds.deadline_seconds(plan.bytes_to_pull if plan else None)

    def _stalled(self, verdict: Verdict) -> PullError:
        progress = self.progress(waiters=0, queue_position=None, behind=None)
        reason = Reason.ENGINE_UNRESPONSIVE if verdict is Verdict.DAEMON_UNRESPONSIVE else Reason.PULL_STALLED
        return PullError(
            f"{self._work.ref.familiar}: {verdict}. {progress.verdict_reason}", reason=reason, retryable=True
        )

    def _failure_of(self, end: StreamEnd) -> EngineError | None:
        image = self._work.ref.familiar
        tracker = self._tracker
        if tracker.succeeded:
            return None
        if tracker.failure_text is not None:
            failure = pull_failure(tracker.failure_text, image=image)
            if failure.reason is Reason.UNAUTHORIZED and tracker.fold.totals().bytes_done:
                # Whoever could read some of it may read the rest: a token has expired on the way.
                failure.retryable = True
            return failure
        if end.status is not None and end.text is not None:
            return pull_failure(end.text, image=image)
        if self._store is StoreKind.PODMAN and not end.broken:
            # Podman says nothing at the end; whether the image is there is for `inspect` to say.
            tracker.confirm()
            return None
        said = f" ({end.text})" if end.text else ""
        return PullError(
            f"{image}: the engine ended the pull without a word{said}; it may have been restarted",
            reason=Reason.ENGINE_UNAVAILABLE,
            retryable=True,
        )

    async def _probe(self) -> None:
        # Only where nothing moves: a healthy pull proves by itself that the engine lives.
        now = time.monotonic()
        changed_at = self._tracker.fold.last_change_at
        if now - (self._attempt_begun if changed_at is None else changed_at) < _PROBE_AFTER_SECONDS:
            self._tracker.daemon_unresponsive = False
        elif now - self._probed_at > _PROBE_EVERY_SECONDS:
            self._probed_at = now
            self._tracker.daemon_unresponsive = not await self._engine.responds()

    async def _back_off(self, failure: EngineError, on_change: Callable[[], None]) -> None:
        asked = await self._work.ask_retry_after() if failure.reason is Reason.RATE_LIMITED else None
        seconds = asked or _BACK_OFF_SECONDS * 2 ** (self._attempt - 1)
        until = time.monotonic() + min(seconds, _BACK_OFF_MAX_SECONDS)
        gives_up = until + _ENGINE_PATIENCE_SECONDS
        self._tracker.back_off(until, failure.message)
        while (now := time.monotonic()) < until or (now < gives_up and not await self._engine.responds()):
            on_change()
            await asyncio.sleep(TICK_SECONDS)

    async def _check_space(self) -> None:
        plan = self._work.plan
        free = await self._engine.free_bytes()
        if plan is None or free is None:
            return
        if free < plan.bytes_to_pull:
            raise PullError(
                f"{self._work.ref.familiar}: needs {plan.bytes_to_pull} bytes and the agent's disk has {free} left; "
                "free space on the agent, or unload images",
                reason=Reason.NO_SPACE,
                retryable=False,
            )
