"""Images on an agent: is it there, and bring it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol

from temporalio import activity

from activities.failures import typed
from towline.domain.progress import PullPhase, PullProgress, Verdict
from towline.domain.pulling import CheckAndPull, CheckImage, ImageCheck, PulledImage, PullStarted, PullVerdict
from towline.domain.queues import ActivityName

_BEAT_SECONDS: Final = 2.0
"""How often a pull that has nothing new to say still proves that it lives (the heartbeat time-out is several times that)."""


class Images(Protocol):
    """An agent's images. Raises `towline.errors.PullError` with a typed reason."""

    async def check(self, request: CheckImage) -> ImageCheck:
        """Look at the engine, and at the registry where the policy asks for it."""
        ...

    async def pull(self, request: CheckAndPull, on_progress: Callable[[PullProgress], None]) -> PulledImage:
        """Return once the image is there. `on_progress` is called from the event loop, about twice a second.

        A cancelled caller leaves the pull; the last one to leave aborts the transfer, and this returns only once the abort
        is acknowledged.
        """
        ...


class SessionSignals(Protocol):
    """The way from an agent to a session's workflow. A workflow that has ended is not an error."""

    async def pull_started(self, workflow_id: str, signal: PullStarted) -> None:
        """Say that the session's pull has begun."""
        ...

    async def pull_verdict(self, workflow_id: str, signal: PullVerdict) -> None:
        """Say what is thought of the session's pull now."""
        ...


class ImageActivities:
    """The image activities of one agent."""

    def __init__(self, *, agent_id: str, images: Images, signals: SessionSignals) -> None:
        self._agent_id = agent_id
        self._images = images
        self._signals = signals

    @activity.defn(name=ActivityName.CHECK_IMAGE)
    @typed
    async def check_image(self, request: CheckImage) -> ImageCheck:
        """Is the image on this agent? Short; safe to repeat."""
        return await self._images.check(request)

    @activity.defn(name=ActivityName.CHECK_AND_PULL)
    @typed
    async def check_and_pull(self, request: CheckAndPull) -> PulledImage:
        """Bring the image, heartbeating a `PullProgress`. Safe to repeat: what is there already is not pulled."""
        reporter = _Reporter(self._agent_id, self._signals)
        reports = asyncio.gather(reporter.beat(), reporter.tell())
        try:
            return await self._images.pull(request, reporter.on_progress)
        finally:
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)


class _Reporter:
    """Turns a pull's progress into heartbeats, and its start and changes of verdict into signals, in order.

    Progress may come from a task of another waiter, whose context belongs to another activity: heartbeats are therefore
    sent from `beat`, a task of this activity, and never from `on_progress`. Signals have a task of their own, so that a
    slow Temporal holds up neither the heartbeats nor the pull.
    """

    def __init__(self, agent_id: str, signals: SessionSignals) -> None:
        self._agent_id = agent_id
        self._signals = signals
        self._workflow_id = activity.info().workflow_id
        self._progress: PullProgress | None = None
        self._to_beat = asyncio.Event()
        self._to_tell = asyncio.Event()

    def on_progress(self, progress: PullProgress) -> None:
        self._progress = progress
        self._to_beat.set()
        self._to_tell.set()

    async def beat(self) -> None:
        while True:
            activity.heartbeat(*([self._progress] if self._progress else []))
            self._to_beat.clear()
            # A pull that says nothing new for a while still proves that it lives.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_SECONDS):
                    await self._to_beat.wait()

    async def tell(self) -> None:
        if self._workflow_id is None:  # A check-and-pull on its own has no workflow to tell.
            return
        started = False
        told = Verdict.HEALTHY
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            progress = self._progress
            if progress is None:
                continue
            if not started and progress.phase is not PullPhase.RESOLVING:
                await self._signals.pull_started(
                    self._workflow_id,
                    PullStarted(
                        agent_id=self._agent_id,
                        pull_id=progress.pull_id,
                        image=progress.image,
                        started_at=progress.started_at,
                    ),
                )
                started = True
            if progress.verdict is not told:
                told = progress.verdict
                verdict = PullVerdict(agent_id=self._agent_id, verdict=told, reason=progress.verdict_reason)
                await self._signals.pull_verdict(self._workflow_id, verdict)
