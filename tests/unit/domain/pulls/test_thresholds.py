"""Limits: what they are, what they are derived from, and what is refused."""

import pytest

from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds, step_bytes

MIB = 1024 * 1024
CLASSIC, CONTAINERD, PODMAN = StoreKind.CLASSIC, StoreKind.CONTAINERD, StoreKind.PODMAN


@pytest.mark.parametrize(
    ("store", "size", "step"),
    [
        (CLASSIC, 8_391_314, 83_913),
        (CLASSIC, 1_000_000_000, 512 * 1024),
        (CLASSIC, None, 512 * 1024),
        (CONTAINERD, 20_000_000, MIB),
        (CONTAINERD, 1_000, 1_000),
        (CONTAINERD, None, MIB),
        (PODMAN, 1_000_000_000, 0),
    ],
)
def test_how_many_bytes_may_come_untold(store: StoreKind, size: int | None, step: int) -> None:
    assert step_bytes(store, size) == step


@pytest.mark.parametrize(
    ("store", "sizes"),
    [
        (CLASSIC, [10**9]),
        (CLASSIC, [10**9] * 3),
        (CONTAINERD, [10**9]),
        (CONTAINERD, [10**7] * 5),
    ],
)
def test_a_shared_link_at_the_floor_rate_is_never_stalled(store: StoreKind, sizes: list[int]) -> None:
    limits = Thresholds()
    silence = sum(step_bytes(store, size) for size in sizes) / limits.floor_bytes_per_s
    assert limits.stall_after(store, sizes) > silence


def test_small_steps_still_get_a_minute_and_many_layers_no_more_than_half_an_hour() -> None:
    limits = Thresholds()
    assert limits.stall_after(CLASSIC, [1000]) == 60
    assert limits.stall_after(PODMAN, [10**9]) == 60
    assert limits.stall_after(CONTAINERD, [10**9] * 100) == 1800


def test_a_fast_past_makes_a_stall_sooner_known_and_a_slow_one_does_not() -> None:
    limits = Thresholds()
    assert limits.stall_after(CONTAINERD, [10**9] * 5, past_rate=50e6) == 60
    assert limits.stall_after(CONTAINERD, [10**9] * 5, past_rate=20e3) == limits.stall_after(CONTAINERD, [10**9] * 5)


@pytest.mark.parametrize("store", list(StoreKind))
@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_a_number_is_taken_as_it_is(store: StoreKind, seconds: float) -> None:
    assert Thresholds(stall_seconds=seconds).stall_after(store, [10**9], past_rate=1e9) == seconds


def test_extraction_has_time_by_its_size_and_never_less_than_five_minutes() -> None:
    assert Thresholds().extract_within(1_000_000) == 300
    assert Thresholds().extract_within(10**10) == 2000
    assert Thresholds(extract_min_seconds=0).extract_within(10**10) == 0
    assert Thresholds(extract_floor_bytes_per_s=0).extract_within(10**10) == 300


def test_the_deadline_follows_from_the_size_and_the_floor_rate() -> None:
    limits = Thresholds()
    assert limits.deadline_seconds(1_000) == 3600
    assert limits.deadline_seconds(10**9) == 10**5 + 300
    assert limits.deadline_seconds(None) is None
    assert Thresholds(floor_bytes_per_s=0).deadline_seconds(10**9) is None


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["stall_seconds", "connecting_seconds", "floor_bytes_per_s"])
def test_what_is_neither_never_nor_a_limit_is_refused(field: str, bad: float) -> None:
    with pytest.raises(ValueError, match=field):
        Thresholds(**{field: bad})


def test_without_a_floor_the_stall_limit_still_allows_for_the_steps() -> None:
    assert Thresholds(floor_bytes_per_s=0).stall_after(CONTAINERD, [10**9]) > 60
