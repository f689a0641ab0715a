"""One attempt of one pull: the stream in, progress and the verdict out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from towline.domain.progress import MAX_LAYERS_SHOWN, LayerPhase, LayerProgress, PullPhase, PullProgress, Verdict
from towline.domain.pulls.fold import PullFold, PullTotals
from towline.domain.pulls.judge import Judge, Judgement
from towline.domain.pulls.meter import Eta, Meter, estimate
from towline.domain.pulls.plan import PullPlan
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds

PERCENT_WHILE_RUNNING_MAX: Final = 99.9
_REASON_LENGTH_MAX: Final = 300
_SHOWN_FIRST: Final = {
    LayerPhase.DOWNLOADING: 0,
    LayerPhase.RETRYING: 0,
    LayerPhase.EXTRACTING: 0,
    LayerPhase.WAITING: 1,
    LayerPhase.DOWNLOADED: 1,
    LayerPhase.DONE: 2,
    LayerPhase.PRESENT: 2,
}


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What an attempt leaves to the next: the account of bytes fetched again, and bytes by layer that the engine kept."""

    retried_bytes: int = 0
    restarts: int = 0
    kept_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _BackOff:
    until: float
    why: str


class PullTracker:
    """Feed it the stream; ask it for progress as often as you like. Times `at` are monotonic seconds.

    `begun_at` is the second of the request; left out, it is that of the first call.
    """

    def __init__(
        self,
        *,
        pull_id: str,
        image: str,
        agent_id: str,
        plan: PullPlan | None,
        store: StoreKind,
        thresholds: Thresholds,
        started_at: datetime,
        attempt: int = 1,
        attempts_max: int = 1,
        carried: Carried | None = None,
        begun_at: float | None = None,
    ) -> None:
        self.pull_id: Final = pull_id
        self.fold: Final = PullFold(plan, store)
        self.daemon_unresponsive = False
        """Set by whoever asks the engine something else beside the pull."""
        self._thresholds = thresholds
        self._blank = PullProgress(
            pull_id=pull_id,
            image=image,
            agent_id=agent_id,
            phase=PullPhase.CONNECTING,
            attempt=attempt,
            attempts_max=attempts_max,
            started_at=started_at,
            updated_at=started_at,
        )
        self._carried = carried or Carried()
        self._judge = Judge(thresholds, begun_at) if begun_at is not None else None
        self._download = Meter(horizon_seconds=max(thresholds.crawl_window_seconds, thresholds.stall_max_seconds))
        self._extract = Meter()
        self._extracting_seconds = 0.0
        self._extracting_since: float | None = None
        self._back_off: _BackOff | None = None
        self.fold.start_with(self._carried.kept_bytes)

    @property
    def succeeded(self) -> bool:
        """The pull has succeeded."""
        return self.fold.succeeded

    @property
    def failure_text(self) -> str | None:
        """The engine's error, once it sent one."""
        return self.fold.failure_text

    def feed(self, message: Mapping[str, object], at: float) -> None:
        """Take one message of the stream."""
        self._begin(at)
        if self._extracting_since is not None:
            self._extracting_seconds += at - self._extracting_since
        self.fold.feed(message, at)
        self._extracting_since = at if self.fold.is_extracting else None
        if self.fold.connected:
            self._download.observe(at, self.fold.transferred_bytes)
            self._extract.observe(self._extracting_seconds, self.fold.extraction_bytes)

    def confirm(self) -> None:
        """The image was found on the engine after the stream's end (Podman has no line that says so)."""
        self.fold.confirm()

    def back_off(self, until: float, why: str) -> None:
        """This attempt has failed because of `why`; the next begins at the monotonic second `until`."""
        self._back_off = _BackOff(until=until, why=why)

    def carry(self) -> Carried:
        """The account for the next attempt. Only the containerd store keeps what has come; elsewhere it is lost."""
        totals = self.fold.totals()
        kept: dict[str, int] = {}
        lost = totals.bytes_done
        if self.fold.store is StoreKind.CONTAINERD:
            kept = {layer.id: layer.done for layer in self.fold.layers.values() if layer.counted and layer.done}
            lost = 0 if self.fold.planned else lost
        return Carried(
            retried_bytes=self._carried.retried_bytes + totals.retried_bytes + lost,
            restarts=self._carried.restarts + totals.restarts + (1 if lost else 0),
            kept_bytes=kept,
        )

    def should_abort(self, at: float) -> Verdict | None:
        """The verdict for which this attempt must end now, or None."""
        if self._back_off is not None:
            return None
        judged = self._judged(at, None)
        return judged.verdict if judged.abort else None

    def progress(
        self,
        at: float,
        wall: datetime,
        *,
        waiters: int = 1,
        queue_position: int | None = None,
        behind: str | None = None,
    ) -> PullProgress:
        """The pull at this instant. `queue_position`: it has not begun, others are before it; `behind`: who they are, or
        who holds the engine's download slots."""
        totals = self.fold.totals()
        judged = self._stand(at, queue_position, behind)
        phase = self._phase(queue_position)
        eta = self._eta(totals, judged, phase, at)
        return replace(
            self._blank,
            phase=phase,
            verdict=judged.verdict,
            verdict_reason=judged.reason[:_REASON_LENGTH_MAX],
            bytes_total=totals.bytes_total,
            bytes_done=totals.bytes_done,
            bytes_present=totals.bytes_present,
            total_is_final=totals.total_is_final,
            extracted_bytes=totals.extracted_bytes,
            layers=totals.layers,
            shown_layers=self._shown(),
            rate_bytes_per_s=_rounded(self._rate(totals, at)),
            eta_seconds=_rounded(eta.seconds),
            eta_reason=eta.reason,
            retry_in_seconds=_rounded(judged.retry_in_seconds),
            retried_bytes=self._carried.retried_bytes + totals.retried_bytes,
            restarts=self._carried.restarts + totals.restarts,
            stalled_for_seconds=round(judged.stalled_for_seconds, 1),
            waiters=waiters,
            queue_position=queue_position,
            updated_at=wall,
            percent=percent_of(totals, succeeded=self.succeeded),
        )

    def _begin(self, at: float) -> Judge:
        if self._judge is None:
            self._judge = Judge(self._thresholds, at)
        return self._judge

    def _judged(self, at: float, behind: str | None) -> Judgement:
        return self._begin(at).judge(
            self.fold, self._download, at, daemon_unresponsive=self.daemon_unresponsive, behind=behind
        )

    def _stand(self, at: float, queue_position: int | None, behind: str | None) -> Judgement:
        if queue_position is not None:
            whom = f"behind {behind}" if behind else "other pulls are before it"
            return Judgement(verdict=Verdict.WAITING, reason=f"Number {queue_position} in this agent's queue; {whom}.")
        if self._back_off is not None:
            seconds = max(0.0, self._back_off.until - at)
            return Judgement(
                verdict=Verdict.RETRYING,
                reason=f"Attempt {self._blank.attempt} of {self._blank.attempts_max} failed. {self._back_off.why}",
                retry_in_seconds=seconds,
            )
        return self._judged(at, behind)

    def _phase(self, queue_position: int | None) -> PullPhase:
        if queue_position is not None:
            return PullPhase.QUEUED
        return PullPhase.RETRYING if self._back_off is not None else self.fold.phase

    def _eta(self, totals: PullTotals, judged: Judgement, phase: PullPhase, at: float) -> Eta:
        if phase is PullPhase.DONE:
            return Eta(seconds=0.0)
        if judged.verdict is not Verdict.HEALTHY and judged.verdict is not Verdict.CRAWLING:
            return Eta(reason=judged.verdict.value)
        if phase is PullPhase.CONNECTING:
            return Eta(reason="connecting")
        if totals.bytes_total is None or not totals.total_is_final:
            return Eta(reason="the total is unknown")
        return estimate(
            to_download_bytes=totals.bytes_total - totals.bytes_done,
            to_extract_bytes=totals.bytes_total - totals.extracted_bytes,
            last_layer_bytes=self.fold.last_layer_bytes(),
            download=self._download,
            extract=self._extract if self.fold.store is StoreKind.CLASSIC else None,
            at=at,
            extracting_seconds=self._extracting_seconds,
        )

    def _rate(self, totals: PullTotals, at: float) -> float | None:
        """Of the download; None before its first byte and after its last."""
        over = self.succeeded or totals.bytes_done == totals.bytes_total
        return None if over else self._download.rate(at)

    def _shown(self) -> tuple[LayerProgress, ...]:
        """The layers that matter most now, in the image's order."""
        numbered = list(enumerate(self.fold.layers.values()))
        first = sorted(numbered, key=lambda pair: (_SHOWN_FIRST[pair[1].phase], pair[0]))[:MAX_LAYERS_SHOWN]
        return tuple(layer.shown() for _, layer in sorted(first, key=lambda pair: pair[0]))


def percent_of(totals: PullTotals, *, succeeded: bool) -> float | None:
    """Bytes done of the bytes to bring, rounded down to a tenth; 100 only after success, None while the total may change."""
    if succeeded:
        return 100.0
    if not totals.total_is_final or totals.bytes_total is None:
        return None
    if totals.bytes_total == 0:
        return PERCENT_WHILE_RUNNING_MAX
    return min(PERCENT_WHILE_RUNNING_MAX, math.floor(1000 * totals.bytes_done / totals.bytes_total) / 10)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
