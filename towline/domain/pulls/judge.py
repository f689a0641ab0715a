"""The verdict on a running pull, by phase, from changed bytes and phases only: messages prove nothing."""

from dataclasses import dataclass
from typing import Final

from towline.domain.progress import LayerPhase, PullPhase, Verdict
from towline.domain.pulls.fold import PullFold
from towline.domain.pulls.layers import LayerState
from towline.domain.pulls.meter import Meter
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds

__all__ = ["Judge", "Judgement", "Thresholds"]

ENGINE_RETRIES: Final = 5
"""How often the classic store tries a layer again by default (`max-download-attempts`)."""
_RECONNECT_SECONDS: Final = 2.0
"""After a countdown's end the next line takes a moment: the verdict does not flap in between."""
_P: Final = LayerPhase


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`stalled_for_seconds`: how long no byte and no phase has changed. `retry_in_seconds`: the engine's countdown.
    `abort`: a limit has been passed; nothing more is to be hoped for from this attempt."""

    verdict: Verdict
    reason: str = ""
    stalled_for_seconds: float = 0.0
    retry_in_seconds: float | None = None
    abort: bool = False


class Judge:
    """Judges one attempt. `begun_at`: the monotonic second of the request."""

    def __init__(self, thresholds: Thresholds, begun_at: float) -> None:
        self._limits = thresholds
        self._begun_at = begun_at
        self._downloads_since: float | None = None
        self._crawls_since: float | None = None

    def judge(
        self, fold: PullFold, meter: Meter, at: float, *, daemon_unresponsive: bool = False, behind: str | None = None
    ) -> Judgement:
        """The verdict at the monotonic second `at`. `meter` counts bytes that arrived; `behind`: who holds the slots."""
        judged = self._judge_stream(fold, meter, at, behind)
        if daemon_unresponsive and not fold.succeeded:
            return Judgement(
                verdict=Verdict.DAEMON_UNRESPONSIVE,
                reason="The engine does not answer questions beside the pull.",
                stalled_for_seconds=judged.stalled_for_seconds,
                abort=judged.abort,
            )
        return judged

    def _judge_stream(self, fold: PullFold, meter: Meter, at: float, behind: str | None) -> Judgement:
        if fold.succeeded:
            return Judgement(verdict=Verdict.HEALTHY)
        if not fold.connected:
            return self._connecting(at)
        downloads_since, self._downloads_since = self._downloads_since, None
        layers = tuple(fold.layers.values())
        if retrying := _retrying(layers, at):
            return retrying
        silent = at - _last_sign(fold, at)
        if fold.phase is PullPhase.EXTRACTING or any(layer.phase is _P.EXTRACTING for layer in layers):
            return self._extracting(layers, silent)
        open_layers = [layer for layer in layers if not layer.has_all_bytes]
        if open_layers and all(layer.queued for layer in open_layers):
            return self._waiting(silent, behind)
        self._downloads_since = at if downloads_since is None else downloads_since
        return self._downloading(fold, open_layers, meter, at, silent)

    def _connecting(self, at: float) -> Judgement:
        silent = max(0.0, at - self._begun_at)
        if _passed(silent, self._limits.connecting_seconds):
            return _stalled(
                f"The engine has not begun the pull in {silent:.0f} s: does the registry answer it?", silent
            )
        return Judgement(verdict=Verdict.HEALTHY, stalled_for_seconds=silent)

    def _extracting(self, layers: tuple[LayerState, ...], silent: float) -> Judgement:
        at_work = [layer for layer in layers if layer.phase is _P.EXTRACTING] or [
            layer for layer in layers if layer.phase is _P.DOWNLOADED
        ]
        size = sum(layer.size or 0 for layer in at_work)
        if _passed(silent, self._limits.extract_within(size)):
            return _stalled(f"Extracting {_named(at_work)} ({size} bytes) shows no sign for {silent:.0f} s.", silent)
        return Judgement(verdict=Verdict.HEALTHY, stalled_for_seconds=silent)

    def _waiting(self, silent: float, behind: str | None) -> Judgement:
        whom = f"behind {behind}" if behind else "other pulls on the engine hold them"
        reason = f"All missing layers wait for the engine's download slots; {whom}."
        if _passed(silent, self._limits.waiting_seconds):
            return _stalled(f"{reason} It has waited {silent:.0f} s.", silent)
        return Judgement(verdict=Verdict.WAITING, reason=reason, stalled_for_seconds=silent)

    def _downloading(
        self, fold: PullFold, open_layers: list[LayerState], meter: Meter, at: float, silent: float
    ) -> Judgement:
        active = [layer for layer in open_layers if not layer.queued]
        limit = self._limits.stall_after(fold.store, (layer.size for layer in active), meter.past_rate())
        if _may_unpack_unseen(fold) and self._limits.stall_seconds is None:
            limit = max(limit, self._limits.extract_within(sum(layer.size or 0 for layer in active)))
        if _passed(silent, limit):
            return _stalled(f"No byte of {_named(active)} for {silent:.0f} s.", silent)
        reason = self._crawl(meter, at, max(self._limits.crawl_window_seconds, limit))
        if reason is None:
            self._crawls_since = None
            return Judgement(verdict=Verdict.HEALTHY, stalled_for_seconds=silent)
        if self._crawls_since is None:
            self._crawls_since = at
        return Judgement(
            verdict=Verdict.CRAWLING,
            reason=f"{reason}: {_named(active)}.",
            stalled_for_seconds=silent,
            abort=_passed(at - self._crawls_since, self._limits.crawl_abort_seconds),
        )

    def _crawl(self, meter: Meter, at: float, window: float) -> str | None:
        """Why it crawls. Only a window in which it did nothing but download can tell; it holds at least one step of the
        engine's, so that a slow link is not taken for a dead one between two of them."""
        if not self._limits.crawl_window_seconds or at - (self._downloads_since or at) < window:
            return None
        rate = meter.average(at, window)
        if rate is None or rate >= self._limits.floor_bytes_per_s:
            return None
        floor = self._limits.floor_bytes_per_s
        return f"{rate:.0f} bytes/s over the last {window:.0f} s, below the floor of {floor:.0f} bytes/s"


def _may_unpack_unseen(fold: PullFold) -> bool:
    """The containerd store says nothing of any layer where it has all blobs and only unpacks them."""
    return fold.store is StoreKind.CONTAINERD and not any(layer.mentioned for layer in fold.layers.values())


def _passed(seconds: float, limit: float) -> bool:
    return limit > 0 and seconds >= limit


def _stalled(reason: str, silent: float) -> Judgement:
    return Judgement(verdict=Verdict.STALLED, reason=reason, stalled_for_seconds=silent, abort=True)


def _last_sign(fold: PullFold, at: float) -> float:
    """The last change, or the end of a countdown: until then the engine has said that nothing will move."""
    ends = [layer.retry_until for layer in fold.layers.values() if layer.retry_until is not None]
    last = max([fold.last_change_at if fold.last_change_at is not None else at, *ends])
    return min(at, last)


def _retrying(layers: tuple[LayerState, ...], at: float) -> Judgement | None:
    counting = [
        layer for layer in layers if layer.retry_until is not None and layer.retry_until + _RECONNECT_SECONDS > at
    ]
    if not counting:
        return None
    layer = min(counting, key=lambda one: one.retry_until or at)
    seconds = max(0.0, (layer.retry_until or at) - at)
    return Judgement(
        verdict=Verdict.RETRYING,
        reason=f"The engine's retry {layer.retries} of {ENGINE_RETRIES} of layer {layer.id}.",
        retry_in_seconds=seconds,
    )


def _named(layers: list[LayerState]) -> str:
    match layers:
        case []:
            return "the image"
        case [layer]:
            return f"layer {layer.id}"
        case [layer, *others]:
            return f"layer {layer.id} and {len(others)} more"
        case _:
            return "the layers"
