"""When a pull counts as stuck or too slow, in plain seconds and bytes; 0 switches a rule off."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, assert_never

from towline.domain.pulls.stores import StoreKind

_MIB: Final = 1024 * 1024
_CLASSIC_STEP_MAX: Final = 512 * 1024
_MARGIN: Final = 1.25
_FLOOR_WHERE_NONE: Final = 10_000.0
_SLOWDOWN: Final = 50.0
"""A link is not thought to become slower than by this factor from one moment to the next."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits by phase. Each is in seconds or bytes per second; 0 means never.

    `stall_seconds` None derives the limit from what a link at `floor_bytes_per_s` still shows (see `stall_after`): slow is
    not stuck. A number is taken as it is, whatever the store.
    """

    connecting_seconds: float = 60.0
    """From the request to the engine's first line."""
    stall_seconds: float | None = None
    """Without a changed byte or phase while layers download."""
    stall_min_seconds: float = 60.0
    stall_max_seconds: float = 1800.0
    """The least and the most that `stall_seconds` None derives."""
    floor_bytes_per_s: float = 10_000.0
    """The slowest link that is still served: below it over the window a pull crawls, and deadlines are derived from it."""
    crawl_window_seconds: float = 300.0
    crawl_abort_seconds: float = 0.0
    """How long a pull may crawl before it counts as stuck."""
    extract_min_seconds: float = 300.0
    """The least that an extraction may take without a sign (see `extract_within`)."""
    extract_floor_bytes_per_s: float = 5_000_000.0
    waiting_seconds: float = 0.0
    """For a download slot of the engine."""
    deadline_min_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (not math.isfinite(value) or value < 0):
                raise ValueError(f"{field.name} must be 0 (never) or a positive number, not {value}")

    def stall_after(self, store: StoreKind, sizes: Iterable[int | None], past_rate: float | None = None) -> float:
        """Seconds without a changed byte after which these downloading layers count as stalled; 0 never.

        An engine tells of a layer only in steps, and layers that share a link step together: at the floor rate all of them
        may be silent for as long as one step of each takes. `past_rate` is what the link did before the silence.
        """
        if self.stall_seconds is not None:
            return self.stall_seconds
        steps = sum(step_bytes(store, size) for size in sizes)
        slowest = max(self.floor_bytes_per_s or _FLOOR_WHERE_NONE, (past_rate or 0.0) / _SLOWDOWN)
        return max(self.stall_min_seconds, min(self.stall_max_seconds, _MARGIN * steps / slowest))

    def extract_within(self, size_bytes: int) -> float:
        """Seconds that extracting `size_bytes` (compressed) may take without a sign; 0 never ends."""
        if not self.extract_min_seconds:
            return 0.0
        by_size = size_bytes / self.extract_floor_bytes_per_s if self.extract_floor_bytes_per_s else 0.0
        return max(self.extract_min_seconds, by_size)

    def deadline_seconds(self, bytes_to_pull: int | None) -> float | None:
        """Seconds for a whole attempt: download at the floor rate and extraction at its own; None without a limit.

        None, too, while the size is unknown: no guess cuts a healthy pull.
        """
        if bytes_to_pull is None or not self.floor_bytes_per_s:
            return None
        download = bytes_to_pull / self.floor_bytes_per_s
        return max(self.deadline_min_seconds, download + self.extract_within(bytes_to_pull))


def step_bytes(store: StoreKind, size_bytes: int | None) -> int:
    """How many bytes may come before the engine tells of them, for a layer of this size."""
    match store:
        case StoreKind.CLASSIC:
            return _CLASSIC_STEP_MAX if size_bytes is None else min(_CLASSIC_STEP_MAX, size_bytes // 100)
        case StoreKind.CONTAINERD:
            return _MIB if size_bytes is None else min(_MIB, size_bytes)
        case StoreKind.PODMAN:
            return 0  # It tells of each layer once a second.
        case _:
            assert_never(store)
