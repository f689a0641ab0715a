"""What a pull has to bring, known before its first byte: the manifest's layers against what the agent holds."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from towline.domain.pulls.stores import StoreKind

SHORT_ID_LENGTH: Final = 12
"""Engines name a layer in their stream by the first 12 hex digits of its compressed digest."""


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """One layer of the manifest. `size_bytes` compressed; `diff_id` None where the config was not read; `present`: it need
    not be brought; `places`: how often the manifest has it."""

    digest: str
    size_bytes: int
    diff_id: str | None
    present: bool
    places: int = 1

    @property
    def short_id(self) -> str:
        """The id in the engine's stream."""
        return self.digest.partition(":")[2][:SHORT_ID_LENGTH]


@dataclass(frozen=True, kw_only=True)
class PullPlan:
    """The layers of one platform's manifest, each digest once, in the manifest's order.

    `bytes_to_pull` is what the registry will be asked for and `bytes_present` the rest; both are exact where
    `total_is_final`, which needs the config's `diff_ids`: without them every layer counts as missing, an upper bound.
    """

    digest: str
    platform: str
    layers: tuple[LayerPlan, ...]
    bytes_to_pull: int
    bytes_present: int
    total_is_final: bool


def plan_pull(
    *,
    digest: str,
    platform: str,
    layers: Sequence[tuple[str, int]],
    diff_ids: Sequence[str],
    local_chains: Iterable[Sequence[str]],
    store: StoreKind,
) -> PullPlan:
    """Compare a manifest's `layers` (compressed digest, size in bytes) with the agent's images.

    `diff_ids` are the config's `rootfs.diff_ids`, in the same order; `local_chains` the `RootFS.Layers` of each image on
    the agent. A classic store reuses a layer only at the same place of the same chain, so present is the longest common
    prefix with any one image; the other stores reuse it wherever it is.
    """
    known = len(diff_ids) == len(layers)
    chain = tuple(diff_ids) if known else ()
    at_hand = _present_positions(chain, local_chains, store)
    # One blob at two places of an image is fetched once; it is spared only if no place needs it.
    missing = {blob for position, (blob, _) in enumerate(layers) if position not in at_hand}
    places = Counter(blob for blob, _ in layers)
    plans = tuple(
        LayerPlan(
            digest=blob,
            size_bytes=max(0, size),
            diff_id=diff_id,
            present=blob not in missing,
            places=places[blob],
        )
        for blob, (size, diff_id) in _distinct(layers, chain).items()
    )
    return PullPlan(
        digest=digest,
        platform=platform,
        layers=plans,
        bytes_to_pull=sum(layer.size_bytes for layer in plans if not layer.present),
        bytes_present=sum(layer.size_bytes for layer in plans if layer.present),
        total_is_final=known,
    )


def _distinct(layers: Sequence[tuple[str, int]], chain: Sequence[str]) -> dict[str, tuple[int, str | None]]:
    """Size and diff id by blob, in the order of the blobs' first places."""
    found: dict[str, tuple[int, str | None]] = {}
    for (blob, size), diff_id in zip_longest(layers, chain):
        found.setdefault(blob, (size, diff_id))
    return found


def _present_positions(chain: Sequence[str], local_chains: Iterable[Sequence[str]], store: StoreKind) -> frozenset[int]:
    match store:
        case StoreKind.CLASSIC:
            longest = max((_common_prefix(chain, local) for local in local_chains), default=0)
            return frozenset(range(longest))
        case StoreKind.CONTAINERD | StoreKind.PODMAN:
            held = {diff_id for local in local_chains for diff_id in local}
            return frozenset(position for position, diff_id in enumerate(chain) if diff_id in held)


def _common_prefix(chain: Sequence[str], local: Sequence[str]) -> int:
    length = 0
    for ours, theirs in zip(chain, local, strict=False):
        if ours != theirs:
            break
        length += 1
    return length
