"""Rates and the ETA, on a clock made of numbers."""

import pytest

from towline.domain.pulls.meter import Eta, Meter, estimate


def steady(
    rate: int, seconds: int, *, step_seconds: int = 1, meter: Meter | None = None, start: int = 0, total: int = 0
) -> Meter:
    """A meter that saw `rate` bytes a second, told every `step_seconds`."""
    made = meter or Meter(horizon_seconds=1800)
    for second in range(start, start + seconds + 1, step_seconds):
        made.observe(float(second), total + rate * (second - start))
    return made


def test_there_is_no_rate_before_the_first_byte() -> None:
    meter = Meter()
    assert meter.rate(0.0) is None
    meter.observe(0.0, 0)
    assert meter.rate(5.0) is None
    assert meter.past_rate() is None


@pytest.mark.parametrize("step_seconds", [1, 5, 52])
def test_a_steady_rate_is_found_however_far_apart_the_steps(step_seconds: int) -> None:
    meter = steady(20_000, 312, step_seconds=step_seconds)
    assert meter.rate(312.0) == pytest.approx(20_000, rel=0.01)
    assert meter.average(312.0, 300) == pytest.approx(20_000, rel=0.2)


def test_the_rate_is_that_of_the_last_window_not_of_the_whole() -> None:
    meter = steady(1000, 100, meter=steady(10, 100), start=100, total=1000)
    assert meter.rate(200.0) == pytest.approx(1000, rel=0.01)


def test_in_a_silence_the_rate_decays() -> None:
    meter = steady(1000, 30)
    rates = [meter.rate(at) or 0.0 for at in (30.0, 40.0, 60.0, 600.0)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 40


def test_many_lines_in_a_second_are_one_sample() -> None:
    meter = Meter()
    for tick in range(10_000):
        meter.observe(tick / 1000, tick)
    assert len(meter._samples) <= 22
    assert meter.rate(10.0) == pytest.approx(1000, rel=0.05)


def test_what_repeats_or_falls_is_no_sample() -> None:
    meter = steady(10, 5)
    meter.observe(6.0, 50)
    meter.observe(7.0, 20)
    assert len(meter._samples) == 6


def test_an_average_needs_its_whole_window() -> None:
    meter = steady(10, 20)
    assert meter.average(20.0, 30) is None
    assert meter.average(20.0, 20) == pytest.approx(10)


def test_the_past_rate_is_before_the_silence() -> None:
    meter = steady(5_000_000, 30)
    assert meter.past_rate() == pytest.approx(5_000_000)
    assert steady(5_000_000, 5).past_rate() is None


def test_a_burst_does_not_make_the_past_fast_for_long() -> None:
    meter = Meter(horizon_seconds=1800)
    meter.observe(0.0, 0)
    meter.observe(1.0, 5_000_000)
    steady(20_000, 300, meter=meter, start=1, total=5_000_000)
    assert meter.past_rate() == pytest.approx(20_000, rel=0.01)


def eta(
    download: Meter,
    at: float,
    *,
    left: int = 1000,
    unpack: int = 0,
    last: int = 0,
    extract: Meter | None = None,
    busy: float | None = None,
) -> Eta:
    return estimate(
        to_download_bytes=left,
        to_extract_bytes=unpack,
        last_layer_bytes=last,
        download=download,
        extract=extract if extract is not None else Meter(),
        at=at,
        extracting_seconds=at if busy is None else busy,
    )


def test_the_eta_is_what_is_left_by_the_average_rate() -> None:
    assert eta(steady(100, 10), 10.0).seconds == pytest.approx(10)


def test_the_last_layers_extraction_comes_after_the_download() -> None:
    extract = steady(50_000_000, 10)
    left = {"left": 1_000_000_000, "unpack": 200_000_000, "last": 100_000_000}
    assert eta(steady(100_000_000, 10), 10.0, **left, extract=extract).seconds == pytest.approx(12)


def test_a_slow_extraction_decides() -> None:
    extract = steady(50_000_000, 10)
    assert eta(steady(100, 10), 10.0, unpack=5_000_000_000, last=100, extract=extract).seconds == pytest.approx(100)


@pytest.mark.parametrize(
    ("meter", "at", "reason"),
    [
        (Meter(), 1.0, "warming up"),
        (steady(100, 2), 2.0, "warming up"),
        (steady(5000, 6, meter=steady(100, 20), start=20, total=2000), 26.0, "the rate is unsteady"),
    ],
)
def test_there_is_no_eta_where_it_would_be_a_lie(meter: Meter, at: float, reason: str) -> None:
    assert eta(meter, at) == Eta(seconds=None, reason=reason)


def test_steps_that_come_seldom_are_not_unsteady() -> None:
    assert eta(steady(20_000, 520, step_seconds=52), 530.0).seconds is not None


def test_after_the_download_only_extraction_is_left() -> None:
    extract = steady(50_000_000, 10)
    assert eta(steady(100, 10), 10.0, left=0, unpack=500_000_000, extract=extract).seconds == pytest.approx(10)


def test_a_small_layer_says_little_of_how_fast_a_large_one_will_be() -> None:
    registered_slowly = steady(500_000, 2)
    made = eta(
        steady(15_000_000, 10),
        10.0,
        left=75_000_000,
        unpack=149_000_000,
        last=5_000_000,
        extract=registered_slowly,
        busy=2.0,
    )
    assert made.seconds == pytest.approx(12, abs=2)


def test_a_store_that_does_not_measure_extraction_has_no_eta_for_it() -> None:
    made = estimate(
        to_download_bytes=0,
        to_extract_bytes=500,
        last_layer_bytes=500,
        download=steady(100, 10),
        extract=None,
        at=10.0,
        extracting_seconds=0.0,
    )
    assert made == Eta(reason="this image store does not measure extraction")
