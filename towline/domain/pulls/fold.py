"""The fold of an engine's pull stream: from its lines to layers, bytes and an end. No sockets, no clock.

Facts about the streams, for the classic and the containerd store and for Podman, are from moby's source
(`pkg/progress`, `distribution/xfer`, `daemon/containerd/progress.go`) and from recordings of real engines, which the tests
replay. A message is not progress: only changed bytes and phases are.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from towline.domain.progress import LayerCounts, LayerPhase, PullPhase
from towline.domain.pulls.layers import LayerState
from towline.domain.pulls.plan import SHORT_ID_LENGTH, PullPlan
from towline.domain.pulls.stores import StoreKind

_LAYER_ID: Final = re.compile(rf"[0-9a-f]{{{SHORT_ID_LENGTH}}}(?:[0-9a-f]{{52}})?")
_RETRYING: Final = re.compile(r"Retrying in (\d{1,6}) seconds?")
_SUCCESS: Final = "Status: "
_DIGEST: Final = re.compile(r"Digest: (sha256:[0-9a-f]{64})")
_NAMES_A_TAG: Final = "Pulling from "
_ODD_LINES_KEPT: Final = 8
_ODD_LENGTH: Final = 80
_P: Final = LayerPhase


@dataclass(frozen=True, kw_only=True)
class PullTotals:
    """All layers together, in bytes. `bytes_total` is a lower bound unless `total_is_final`, None while nothing is known."""

    bytes_total: int | None
    total_is_final: bool
    bytes_done: int
    bytes_present: int
    extracted_bytes: int
    retried_bytes: int
    restarts: int
    layers: LayerCounts


class PullFold:
    """One attempt's stream. Feed it every message with the monotonic second of its arrival; odd ones never raise.

    With a plan its sizes win and only its layers count. Bytes that the containerd store kept from an earlier attempt count
    as done from the first line that shows them: the registry need not serve them again.
    """

    def __init__(self, plan: PullPlan | None, store: StoreKind) -> None:
        self.store: Final = store
        self.connected = False
        """The engine has sent a line about the pull."""
        self.digest: str | None = None
        self.failure_text: str | None = None
        self.last_change_at: float | None = None
        self.odd_lines: list[str] = []
        """The first few statuses that are not understood, for a log."""
        self.transferred_bytes = 0
        self.extraction_bytes = 0
        """Both are running totals of what was seen to happen; they never fall, and feed the meters."""
        self._plan = plan
        self._done = False
        self._total_raises = 0
        self.layers: Final[dict[str, LayerState]] = {}
        for layer in plan.layers if plan else ():
            self.layers[layer.short_id] = LayerState(
                id=layer.short_id,
                size=layer.size_bytes,
                size_is_final=True,
                counted=not layer.present,
                places=layer.places if store is StoreKind.CLASSIC else 1,
                shows_kept_bytes=store is StoreKind.CONTAINERD,
                phase=_P.PRESENT if layer.present else _P.WAITING,
            )

    @property
    def succeeded(self) -> bool:
        """The engine said so in its last line (`Status: …`), or `confirm` was called; an error takes it back."""
        return self._done and self.failure_text is None

    @property
    def planned(self) -> bool:
        """Whether the layers and their sizes are known from the manifest."""
        return self._plan is not None

    @property
    def engine_retries(self) -> int:
        """How often the engine itself began a layer anew, at most, over the layers."""
        return max((layer.retries for layer in self.layers.values()), default=0)

    def last_layer_bytes(self) -> int:
        """Size of the topmost layer that is to be brought: its extraction begins last."""
        return next((layer.size or 0 for layer in reversed(self.layers.values()) if layer.counted), 0)

    def confirm(self) -> None:
        """The image was found on the engine: how a Podman pull, which has no last line, is known to have succeeded."""
        self._done = True

    def start_with(self, kept_bytes: Mapping[str, int]) -> None:
        """Bytes by layer id that the engine is known to have kept from the attempt before."""
        for layer_id, kept in kept_bytes.items():
            if (layer := self.layers.get(layer_id)) and layer.counted and kept > 0:
                layer.done = min(kept, layer.size or kept)
                if layer.done == layer.size:
                    layer.phase = _P.DOWNLOADED

    def feed(self, message: Mapping[str, object], at: float) -> None:
        """Take one message that arrived at the monotonic second `at`."""
        if failure := _failure_of(message):
            self.failure_text = failure
            return
        status = message.get("status")
        if not isinstance(status, str) or not status:
            return
        if not self.connected:
            self.connected, self.last_change_at = True, at
        if not (layer_id := message.get("id")):
            self._take_general(status)
        elif layer := self._layer_of(layer_id, status):
            self._take_line(layer, status, message, at)

    def _take_line(self, layer: LayerState, status: str, message: Mapping[str, object], at: float) -> None:
        before, counted = layer.token, layer.counted
        transferred, extracted = layer.transferred, layer.extracted
        self._take_layer(layer, status, message, at)
        self.transferred_bytes += layer.transferred - transferred
        self.extraction_bytes += max(0, layer.extracted - extracted)
        if layer.token != before:
            self.last_change_at = at
        if layer.counted != counted and any(other.done for other in self._counted()):
            # The plan said that it was here. The total rises, so the percentage falls: that is announced as a restart.
            self._total_raises += 1

    def _layer_of(self, layer_id: object, status: str) -> LayerState | None:
        """The layer that a line is about. The id of a `Pulling from` line is a tag, even one that looks like a layer's."""
        if not isinstance(layer_id, str) or status.startswith(_NAMES_A_TAG) or not _LAYER_ID.fullmatch(layer_id):
            return None
        short = layer_id[:SHORT_ID_LENGTH]
        if self._plan is not None:
            return self.layers.get(short)
        return self.layers.setdefault(short, LayerState(id=short, shows_kept_bytes=self.store is StoreKind.CONTAINERD))

    def _take_general(self, status: str) -> None:
        if found := _DIGEST.fullmatch(status):
            self.digest = found[1]
        elif status.startswith(_SUCCESS):
            self._done = True

    def _take_layer(self, layer: LayerState, status: str, message: Mapping[str, object], at: float) -> None:
        current, total, in_bytes = _detail_of(message)
        match status:
            case "Pulling fs layer":
                layer.announce()
                return
            case "Waiting":
                layer.queue()
                return
            case "Downloading" | "Pulling layer fs" if in_bytes:
                _count_after_all(layer, moved=current is not None)
                layer.download(current, total)
            case "Verifying Checksum" | "Download complete":
                _count_after_all(layer, moved=True)
                layer.downloaded()
            case "Extracting":
                layer.extract(current, total, in_bytes=in_bytes)
            case "Pull complete":
                layer.complete()
            case "Already exists" | "Exists":
                layer.exists()
            case _ if found := _RETRYING.fullmatch(status):
                layer.retry(int(found[1]), at)
            case _:
                self._note_odd(status[:_ODD_LENGTH])
                return
        self._keep_what_lies_below()

    def _note_odd(self, status: str) -> None:
        if len(self.odd_lines) < _ODD_LINES_KEPT and status not in self.odd_lines:
            self.odd_lines.append(status)

    def _keep_what_lies_below(self) -> None:
        """The containerd store says nothing at all of the lowest layers if they were unpacked before: it starts with the
        first that was not. Known once a layer is told of after the announcements, for these come in any order."""
        if self.store is not StoreKind.CONTAINERD:
            return
        for lower in self.layers.values():
            if lower.mentioned:
                return
            if lower.phase is not _P.PRESENT:
                lower.keep()

    def _counted(self) -> Iterable[LayerState]:
        return (layer for layer in self.layers.values() if layer.counted)

    @property
    def is_extracting(self) -> bool:
        """Some layer is being extracted."""
        return any(layer.phase is LayerPhase.EXTRACTING for layer in self.layers.values())

    @property
    def phase(self) -> PullPhase:
        """The phase of the layers that hold the pull up."""
        if self.succeeded:
            return PullPhase.DONE
        if not self.connected:
            return PullPhase.CONNECTING
        phases = {layer.phase for layer in self.layers.values()}
        if _P.DOWNLOADING in phases:
            return PullPhase.DOWNLOADING
        if _P.RETRYING in phases:
            return PullPhase.RETRYING
        if _P.EXTRACTING in phases or (phases and _P.WAITING not in phases):
            return PullPhase.EXTRACTING
        return PullPhase.DOWNLOADING

    def totals(self) -> PullTotals:
        """All layers together, now."""
        layers = self.layers.values()
        counted = tuple(self._counted())
        done = sum(layer.done for layer in counted if not self._is_outside(layer))
        total, final = self._total()
        extracted = sum(layer.extracted for layer in counted)
        if self.succeeded:
            total = max(total or 0, done)
            done, extracted, final = total, total, True
        return PullTotals(
            bytes_total=total,
            total_is_final=final,
            bytes_done=done,
            bytes_present=sum(layer.size or 0 for layer in layers if not layer.counted or self._is_outside(layer)),
            extracted_bytes=extracted,
            retried_bytes=sum(layer.retried_bytes for layer in layers),
            restarts=self._total_raises + sum(layer.restarts for layer in layers),
            layers=self._counts(),
        )

    def _is_outside(self, layer: LayerState) -> bool:
        """Without a plan, a layer that exists already is outside of what has to be brought."""
        return self._plan is None and layer.phase is _P.PRESENT

    def _total(self) -> tuple[int | None, bool]:
        if self._plan is not None:
            return sum(layer.size or 0 for layer in self._counted()), self._plan.total_is_final
        at_least = sum(layer.size_floor for layer in self.layers.values() if not self._is_outside(layer))
        return at_least or None, False

    def _counts(self) -> LayerCounts:
        tally = dict.fromkeys(LayerPhase, 0)
        for layer in self.layers.values():
            tally[layer.phase] += 1
        if self.succeeded:
            tally = dict.fromkeys(LayerPhase, 0) | {
                _P.PRESENT: tally[_P.PRESENT],
                _P.DONE: len(self.layers) - tally[_P.PRESENT],
            }
        return LayerCounts(
            total=len(self.layers),
            present=tally[_P.PRESENT],
            waiting=tally[_P.WAITING] + tally[_P.RETRYING],
            downloading=tally[_P.DOWNLOADING] + tally[_P.DOWNLOADED],
            extracting=tally[_P.EXTRACTING],
            done=tally[_P.DONE],
        )


def _count_after_all(layer: LayerState, *, moved: bool) -> None:
    """A layer that the plan had on the agent comes nevertheless."""
    if moved and not layer.counted:
        layer.counted, layer.phase, layer.done = True, _P.WAITING, 0


def _failure_of(message: Mapping[str, object]) -> str | None:
    """The engine's error text: `errorDetail` first, the older `error` else, and the body of a plain HTTP error."""
    detail = message.get("errorDetail")
    if isinstance(detail, Mapping):
        text = detail.get("message")
        if isinstance(text, str) and text:
            return text
    text = message.get("error")
    if not text and "status" not in message:
        text = message.get("message")
    if isinstance(text, str) and text:
        return text
    return "the engine reported an error without a text" if detail or text else None


def _detail_of(message: Mapping[str, object]) -> tuple[int | None, int | None, bool]:
    """`current`, `total` and whether they count bytes. Zero values are omitted by engines, so a missing one is unknown."""
    detail = message.get("progressDetail")
    if not isinstance(detail, Mapping):
        return None, None, True
    units = detail.get("units")
    return _count(detail.get("current")), _count(detail.get("total")), units in (None, "", "bytes")


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 62:
        return None
    return int(value)
