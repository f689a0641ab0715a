"""Rates over a window, and an ETA that is absent, with a reason, where it would be a lie."""

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

RATE_WINDOW_SECONDS: Final = 20.0
WARM_UP_SECONDS: Final = 3.0
UNSTEADY_FACTOR: Final = 2.0
_SAMPLE_SECONDS: Final = 1.0
_STEPS_IN_WINDOW: Final = 3
_PAST_SECONDS: Final = 120.0
_PAST_SECONDS_MIN: Final = 10.0
_EXTRACT_PRIOR_BYTES_PER_S: Final = 50e6
"""What a host is assumed to extract per second: compressed bytes; conservative for random data on one core."""

_EXTRACT_PRIOR_BYTES: Final = 32e6
"""How much extracting the assumption weighs as: a small first layer, of which most is the time to register it, says little of
how fast a large one will be."""


class _Sample(NamedTuple):
    at: float
    total: int


class Meter:
    """Bytes per second from a running total that never falls. `horizon_seconds`: how far back `average` can look."""

    def __init__(self, horizon_seconds: float = RATE_WINDOW_SECONDS) -> None:
        self._horizon = horizon_seconds
        self._samples: list[_Sample] = []
        self._began: float | None = None

    def observe(self, at: float, total: int) -> None:
        """The running total at the monotonic second `at`. Only a raised one is a sample; the first call is the zero."""
        samples = self._samples
        if not samples:
            self._began = at
            samples.append(_Sample(at, total))
            return
        if total <= samples[-1].total:
            return
        sample = _Sample(at, total)
        if len(samples) > 1 and at - samples[-2].at < _SAMPLE_SECONDS:
            samples[-1] = sample
        else:
            samples.append(sample)
        del samples[: self._start_of_window(at - self._horizon)]

    def rate(self, at: float) -> float | None:
        """Average over the last window, or over the last steps where these come further apart. None before the first byte."""
        samples = self._samples
        if len(samples) < 2:
            return None
        start, last = self._start_of_window(at - RATE_WINDOW_SECONDS), len(samples) - 1
        usual_gap = (samples[last].at - samples[start].at) / (last - start)
        return _rate_between(samples[start], samples[last], max(samples[last].at, at - usual_gap))

    def _start_of_window(self, since: float) -> int:
        """Index of the sample that held at `since`, or of an earlier one where the steps come too seldom."""
        return max(0, min(self._held_at(since), len(self._samples) - 1 - _STEPS_IN_WINDOW))

    def _held_at(self, second: float) -> int:
        return max(0, bisect_right(self._samples, second, key=attrgetter("at")) - 1)

    def average(self, at: float, window_seconds: float) -> float | None:
        """Bytes per second over the whole last `window_seconds`; None while the history is shorter."""
        if self._began is None or at - self._began < window_seconds:
            return None
        start = self._samples[self._held_at(at - window_seconds)]
        return (self._samples[-1].total - start.total) / window_seconds

    def past_rate(self) -> float | None:
        """Average before the last byte came, over two minutes at most: what the link could do. None where there is too
        little past to tell."""
        if self._began is None:
            return None
        last = self._samples[-1]
        start = self._samples[self._held_at(last.at - _PAST_SECONDS)]
        if last.at - start.at < _PAST_SECONDS_MIN:
            return None
        return (last.total - start.total) / (last.at - start.at)

    def warm(self, at: float) -> bool:
        """Whether there has been enough to speak of a rate."""
        return len(self._samples) > 1 and self._began is not None and at - self._began >= WARM_UP_SECONDS

    def unsteady(self, at: float) -> bool:
        """Whether the newest third of the window differs from all of it by more than a factor of two. Steps that come too
        seldom to tell count as steady."""
        recent = self._samples[self._held_at(at - RATE_WINDOW_SECONDS / 3) + 1 :]
        whole = self.rate(at)
        if len(recent) <= _STEPS_IN_WINDOW or not whole:
            return False
        now = _rate_between(recent[0], recent[-1], at)
        return not whole / UNSTEADY_FACTOR <= now <= whole * UNSTEADY_FACTOR


def _rate_between(first: _Sample, last: _Sample, at: float) -> float:
    return (last.total - first.total) / max(at - first.at, 1e-3)


def _extract_rate(measured: float | None, seconds: float) -> float:
    """What was measured in `seconds`, and what is assumed, each by its weight."""
    done = (measured or 0.0) * seconds
    return (done + _EXTRACT_PRIOR_BYTES) / (seconds + _EXTRACT_PRIOR_BYTES / _EXTRACT_PRIOR_BYTES_PER_S)


@dataclass(frozen=True, kw_only=True)
class Eta:
    """Seconds to the end, or None with the reason."""

    seconds: float | None = None
    reason: str = ""


def estimate(
    *,
    to_download_bytes: int,
    to_extract_bytes: int,
    last_layer_bytes: int,
    download: Meter,
    extract: Meter | None,
    at: float,
    extracting_seconds: float,
) -> Eta:
    """ETA of a pull that runs undisturbed. Extraction overlaps the download, but is serial and ends with the last layer.

    `extract` None: the engine does not tell of bytes extracted. Else its clock is `extracting_seconds`, the time in which
    something was extracted: while the next layer is still being downloaded the host extracts nothing, which is no slowness.
    """
    extract_rate = _extract_rate(extract.rate(extracting_seconds) if extract else None, extracting_seconds)
    if to_download_bytes <= 0:
        if extract is None:
            return Eta(reason="this image store does not measure extraction")
        return Eta(seconds=to_extract_bytes / extract_rate)
    if not download.warm(at):
        return Eta(reason="warming up")
    rate = download.rate(at)
    if not rate:
        return Eta(reason="no byte has come yet")
    if download.unsteady(at):
        return Eta(reason="the rate is unsteady")
    tail = min(to_extract_bytes, last_layer_bytes) / extract_rate
    return Eta(seconds=max(to_download_bytes / rate + tail, to_extract_bytes / extract_rate))
