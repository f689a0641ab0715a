"""An agent's images in memory: pulls at a speed that a test chooses, fails as it says, and shares as the real one does."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from towline.domain.ids import new_id
from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullPhase, PullProgress, Verdict
from towline.domain.pulling import CheckAndPull, CheckImage, ImageCheck, PulledImage, PullOutcome, PullReport
from towline.domain.sessions import PullPolicy
from towline.engine.shared_pulls import SharedPull, SharedPulls, Slot, Waiter
from towline.errors import EngineError, PullError

_STEPS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What the registry has under a reference."""

    digest: str
    size_bytes: int = 1_000_000


@dataclass(kw_only=True, eq=False)
class FakeEngineImages:
    """`registry` and `held` are by canonical reference (`docker.io/library/x:1`); `held` gives digests.

    `bytes_per_second` None: at once. While `flows` is not set no byte moves. `failures` are raised by the next transfers, in order.
    """

    registry: dict[str, Offered] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    failures: list[EngineError] = field(default_factory=list)
    bytes_per_second: float | None = None
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    unique_pulls_max: int = 3
    transfers: int = 0
    aborted: int = 0

    def __post_init__(self) -> None:
        self.flows.set()
        self._shared: SharedPulls[_Transfer, PullProgress] = SharedPulls(limit=self.unique_pulls_max, view=_view)

    async def check(self, request: CheckImage) -> ImageCheck:
        """As the real one: `never` needs it here, `always` what the registry has now."""
        ref = ImageRef.parse(request.image)
        held, offered = self._held(ref), self._offered(ref)
        if request.policy is PullPolicy.NEVER and held is None:
            raise _absent(ref)
        if request.policy is PullPolicy.ALWAYS and offered is None and held is not None and request.allow_stale:
            return ImageCheck(present=True, digest=held, image_id=held, stale=True)
        outdated = request.policy is PullPolicy.ALWAYS and (offered is None or offered.digest != held)
        if held is not None and not outdated:
            return ImageCheck(present=True, digest=held, image_id=held)
        if offered is None:
            return ImageCheck(present=False, digest=ref.digest)
        return ImageCheck(present=False, digest=offered.digest, bytes_to_pull=offered.size_bytes, total_is_final=True)

    async def pull(self, request: CheckAndPull, on_progress: Callable[[PullProgress], None]) -> PulledImage:
        """As the real one: one transfer per content, the last to leave aborts it."""
        asked = ImageRef.parse(request.image)
        ref = asked.pinned(request.digest) if request.digest else asked
        held = None if request.policy is PullPolicy.ALWAYS and ref.digest is None else self._held(ref)
        if held is not None:
            self.held.setdefault(str(asked), held)
            return PulledImage(image_ref=held, digest=held, image_id=held, pulled=False)
        if request.policy is PullPolicy.NEVER:
            raise _absent(asked)
        offered = self._offered(ref)
        key = str(ref.pinned(offered.digest)) if offered else str(ref)
        report = await self._shared.join(
            key,
            Waiter(name=request.waiter, priority=request.priority, on_change=on_progress),
            lambda: _Transfer(self, asked, offered),
        )
        assert isinstance(report, PullReport)
        assert report.digest is not None
        self.held[str(asked)] = self.held[str(asked.pinned(report.digest))] = report.digest
        return PulledImage(
            image_ref=report.digest, digest=report.digest, image_id=report.digest, pulled=True, report=report
        )

    def running_pulls(self) -> int:
        """How many transfers are under way."""
        return len(self._shared.running())

    def _held(self, ref: ImageRef) -> str | None:
        return self.held.get(str(ref))

    def _offered(self, ref: ImageRef) -> Offered | None:
        if ref.digest is None:
            return self.registry.get(str(ref))
        named = (offered for text, offered in self.registry.items() if text.startswith(ref.name))
        return next((offered for offered in named if offered.digest == ref.digest), None)


class _Transfer:
    def __init__(self, images: FakeEngineImages, ref: ImageRef, offered: Offered | None) -> None:
        self._images = images
        self._offered = offered
        self._started_at = datetime.now(UTC)
        self.done_bytes = 0
        self.progress = PullProgress(
            pull_id=new_id("pull"),
            image=ref.familiar,
            agent_id="fake",
            phase=PullPhase.CONNECTING,
            bytes_total=offered.size_bytes if offered else None,
            total_is_final=offered is not None,
            started_at=self._started_at,
            updated_at=self._started_at,
        )

    async def run(self, slot: Slot, on_change: Callable[[], None]) -> PullReport:
        try:
            async with slot():
                self._images.transfers += 1
                await self._transfer(on_change)
        except asyncio.CancelledError:
            self._images.aborted += 1
            raise
        except EngineError as error:
            error.report = self._report(PullOutcome.FAILED, error)
            raise
        return self._report(PullOutcome.SUCCEEDED, None)

    async def _transfer(self, on_change: Callable[[], None]) -> None:
        if self._images.failures:
            raise self._images.failures.pop(0)
        if self._offered is None:
            raise PullError(f"{self.progress.image}: no such image", reason=Reason.IMAGE_NOT_FOUND, retryable=False)
        for step in range(1, _STEPS + 1):
            on_change()
            await self._images.flows.wait()
            rate = self._images.bytes_per_second
            await asyncio.sleep(self._offered.size_bytes / _STEPS / rate if rate else 0)
            self.done_bytes = self._offered.size_bytes * step // _STEPS
        on_change()

    def _report(self, outcome: PullOutcome, error: EngineError | None) -> PullReport:
        return PullReport(
            pull_id=self.progress.pull_id,
            agent_id=self.progress.agent_id,
            image=self.progress.image,
            digest=self._offered.digest if self._offered else None,
            started_at=self._started_at,
            ended_at=datetime.now(UTC),
            outcome=outcome,
            reason=error.reason if error else None,
            message=error.message if error else "",
            bytes_pulled=self.done_bytes,
        )


def _view(shared: SharedPull[_Transfer, PullProgress]) -> PullProgress:
    progress, done = shared.job.progress, shared.job.done_bytes
    total = progress.bytes_total
    queued = shared.queue_position is not None
    finished = total is not None and done == total
    phase = PullPhase.DONE if finished else PullPhase.QUEUED if queued else PullPhase.DOWNLOADING
    return replace(
        progress,
        phase=phase,
        verdict=Verdict.WAITING if queued else Verdict.HEALTHY,
        bytes_done=done,
        percent=None if not total else 100.0 if finished else min(99.9, 100 * done / total),
        waiters=len(shared.names),
        queue_position=shared.queue_position,
        updated_at=datetime.now(UTC),
    )


def _absent(ref: ImageRef) -> PullError:
    return PullError(f"{ref.familiar}: not on the agent", reason=Reason.IMAGE_ABSENT, retryable=False)
