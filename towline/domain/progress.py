"""What can be said of a pull while it runs. These values are the heartbeat's details, the API's `pull` and the CLI's bars."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

MAX_LAYERS_SHOWN: Final = 12
"""Layers told one by one in a progress; the rest is in the counts. Keeps a heartbeat under 4 KB whatever the image."""


class PullPhase(StrEnum):
    """What the pull is doing as a whole: the phase of the layers that hold it up."""

    QUEUED = "queued"
    RESOLVING = "resolving"
    CONNECTING = "connecting"
    DOWNLOADING = "downloading"
    RETRYING = "retrying"
    EXTRACTING = "extracting"
    DONE = "done"


class LayerPhase(StrEnum):
    """Where one layer is."""

    WAITING = "waiting"
    DOWNLOADING = "downloading"
    RETRYING = "retrying"
    DOWNLOADED = "downloaded"
    EXTRACTING = "extracting"
    DONE = "done"
    PRESENT = "present"


class Verdict(StrEnum):
    """What we think of a running pull."""

    HEALTHY = "healthy"
    WAITING = "waiting"
    RETRYING = "retrying"
    CRAWLING = "crawling"
    STALLED = "stalled"
    DAEMON_UNRESPONSIVE = "daemon-unresponsive"


@dataclass(frozen=True, kw_only=True)
class LayerCounts:
    """Layers by phase; they add up to `total`. `waiting` includes retrying ones, `downloading` includes downloaded ones
    that wait for the layer below them."""

    total: int = 0
    present: int = 0
    waiting: int = 0
    downloading: int = 0
    extracting: int = 0
    done: int = 0


@dataclass(frozen=True, kw_only=True)
class LayerProgress:
    """One layer. `id` is the first 12 hex digits of its compressed digest; `bytes_total` None while unknown."""

    id: str
    phase: LayerPhase
    bytes_done: int
    bytes_total: int | None
    extracted_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class PullProgress:
    """A pull at one instant.

    `bytes_total` is what this pull has to bring (what is present already is in `bytes_present`, outside of it), None while
    unknown; `total_is_final` says that it will not change. `bytes_done` falls only when a layer restarts, which raises
    `restarts`. `percent` is None while the total is unknown, and below 100 until the pull has succeeded.
    """

    pull_id: str
    image: str
    agent_id: str
    phase: PullPhase
    verdict: Verdict = Verdict.HEALTHY
    verdict_reason: str = ""
    bytes_total: int | None = None
    bytes_done: int = 0
    bytes_present: int = 0
    total_is_final: bool = False
    extracted_bytes: int = 0
    layers: LayerCounts = LayerCounts()
    shown_layers: tuple[LayerProgress, ...] = ()
    rate_bytes_per_s: float | None = None
    eta_seconds: float | None = None
    eta_reason: str = ""
    """Why there is no ETA; empty when there is one."""
    attempt: int = 1
    attempts_max: int = 1
    retry_in_seconds: float | None = None
    retried_bytes: int = 0
    restarts: int = 0
    stalled_for_seconds: float = 0.0
    waiters: int = 1
    queue_position: int | None = None
    started_at: datetime
    updated_at: datetime
    percent: float | None = None
