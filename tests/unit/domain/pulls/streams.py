"""Pull streams for tests: the recordings of real engines, and lines made by hand."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from towline.domain.progress import PullProgress
from towline.domain.pulls.plan import LayerPlan, PullPlan
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds
from towline.domain.pulls.tracker import Carried, PullTracker

RECORDINGS: Final = Path(__file__).parents[3] / "data" / "docker_streams"
WALL: Final = datetime(2026, 12, 1, tzinfo=UTC)
Message = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one request to a real engine answered: messages with the second of their arrival, and when it was over."""

    name: str
    store: StoreKind
    lines: tuple[tuple[float, Message], ...]
    ended_at: float


def names() -> list[str]:
    """All recordings."""
    return sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))


def read(name: str) -> Recording:
    """One recording."""
    rows = [json.loads(row) for row in (RECORDINGS / f"{name}.jsonl").read_text().splitlines()]
    kinds = {"containerd": StoreKind.CONTAINERD, "podman": StoreKind.PODMAN}
    return Recording(
        name=name,
        store=kinds.get(name.partition("_")[0], StoreKind.CLASSIC),
        lines=tuple((row["t"], row["m"]) for row in rows if "m" in row),
        ended_at=rows[-1]["t"],
    )


def plan_for(recording: Recording) -> PullPlan:
    """The plan that the manifest would have given, with the sizes that the stream names. Unnamed sizes count as 1,000.

    A layer that exists and is announced nevertheless has two places, of which one is above what the agent holds.
    """
    sizes: dict[str, int] = {}
    present: set[str] = set()
    announced: set[str] = set()
    for _, message in recording.lines:
        layer = message.get("id")
        if not isinstance(layer, str) or len(layer) != 12:
            continue
        detail = message.get("progressDetail") or {}
        sizes[layer] = max(sizes.get(layer, 0), detail.get("total", 0))
        if message.get("status") == "Already exists":
            present.add(layer)
        if message.get("status") == "Pulling fs layer":
            announced.add(layer)
    twice = present & announced
    return plan_of({layer: size or 1_000 for layer, size in sizes.items()}, present=present - announced, twice=twice)


def plan_of(
    sizes: Mapping[str, int], *, present: Iterable[str] = (), twice: Iterable[str] = (), final: bool = True
) -> PullPlan:
    """A plan of layers by short id; those in `twice` have two places."""
    held, doubled = set(present), set(twice)
    layers = tuple(
        LayerPlan(
            digest=f"sha256:{layer:0<64}",
            size_bytes=size,
            diff_id=None,
            present=layer in held,
            places=2 if layer in doubled else 1,
        )
        for layer, size in sizes.items()
    )
    return PullPlan(
        digest="sha256:" + "d" * 64,
        platform="linux/amd64",
        layers=layers,
        bytes_to_pull=sum(layer.size_bytes for layer in layers if not layer.present),
        bytes_present=sum(layer.size_bytes for layer in layers if layer.present),
        total_is_final=final,
    )


def layer_id(number: int) -> str:
    """A layer's short id."""
    return f"{number:012x}"


def line(status: str, layer: str | None = None, **detail: object) -> dict[str, object]:
    """One message, as the engine writes it: zero values are left out."""
    shown = {key: value for key, value in detail.items() if value not in (0, None)}
    message: dict[str, object] = {"status": status}
    if layer is not None:
        message |= {"id": layer, "progressDetail": shown}
    return message


def a_tracker(
    plan: PullPlan | None = None,
    *,
    store: StoreKind = StoreKind.CLASSIC,
    thresholds: Thresholds | None = None,
    carried: Carried | None = None,
    attempt: int = 1,
) -> PullTracker:
    """A tracker whose request was made at second 0."""
    return PullTracker(
        pull_id="pul-1",
        image="docker.io/library/busybox:latest",
        agent_id="agent-1",
        plan=plan,
        store=store,
        thresholds=thresholds or Thresholds(),
        started_at=WALL,
        attempt=attempt,
        attempts_max=3,
        carried=carried,
        begun_at=0.0,
    )


def seen(tracker: PullTracker, at: float) -> PullProgress:
    """The progress at a second."""
    return tracker.progress(at, WALL)


def replay(tracker: PullTracker, lines: Iterable[tuple[float, Message]]) -> Iterator[PullProgress]:
    """Feed lines one by one; the progress after each."""
    for at, message in lines:
        tracker.feed(message, at)
        yield seen(tracker, at)


def assert_sound(before: PullProgress | None, now: PullProgress) -> None:
    """What holds of every progress, and from one to the next."""
    counts = now.layers
    assert counts.total == counts.present + counts.waiting + counts.downloading + counts.extracting + counts.done
    assert 0 <= now.bytes_done <= (now.bytes_total or 0)
    assert now.extracted_bytes <= now.bytes_done
    assert now.percent is None or now.percent == 100.0 or now.percent <= 99.9
    assert (now.percent == 100.0) == (now.phase == "done")
    assert (now.eta_seconds is None) == bool(now.eta_reason)
    if before is None:
        return
    announced = now.restarts > before.restarts
    assert now.restarts >= before.restarts
    assert now.retried_bytes >= before.retried_bytes
    assert announced or now.bytes_done >= before.bytes_done
    assert announced or (now.percent or 0) >= (before.percent or 0)
    assert (now.bytes_total or 0) >= (before.bytes_total or 0)
