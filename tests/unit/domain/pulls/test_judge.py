"""Verdicts by phase: what is stuck, what only looks like it, and what is shown in between."""

from collections.abc import Iterable, Mapping

import pytest

from tests.unit.domain.pulls.streams import a_tracker, layer_id, line, plan_of, seen
from towline.domain.progress import Verdict
from towline.domain.pulls.plan import PullPlan
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds
from towline.domain.pulls.tracker import PullTracker

A, B = layer_id(10), layer_id(11)
MIB = 1024 * 1024
PLAN = plan_of({A: 100 * MIB, B: 10 * MIB})
CLASSIC, CONTAINERD, PODMAN = StoreKind.CLASSIC, StoreKind.CONTAINERD, StoreKind.PODMAN
Timed = tuple[float, Mapping[str, object]]


def tracker(
    *lines: Timed,
    plan: PullPlan | None = PLAN,
    store: StoreKind = CLASSIC,
    limits: Thresholds | None = None,
) -> PullTracker:
    made = a_tracker(plan, store=store, thresholds=limits)
    for at, message in lines:
        made.feed(message, at)
    return made


def downloading(current: int, layer: str = A, total: int = 100 * MIB) -> dict[str, object]:
    return line("Downloading", layer, current=current, total=total)


def link(rate: int, seconds: int, *, step: int, layers: Iterable[str] = (A,), total: int = 100 * MIB) -> list[Timed]:
    """The lines of layers that share a link of `rate` bytes a second, each told of once `step` more bytes have come."""
    names = tuple(layers)
    every = step * len(names) / rate
    return [
        (number * every, downloading(number * step, name, total))
        for number in range(1, int(seconds / every) + 1)
        for name in names
    ]


def judged_each_second(made: PullTracker, lines: list[Timed], until: int) -> set[Verdict]:
    found = set()
    rest = list(lines)
    for second in range(until):
        while rest and rest[0][0] <= second:
            at, message = rest.pop(0)
            made.feed(message, at)
        found.add(seen(made, float(second)).verdict)
        assert made.should_abort(float(second)) is None or Verdict.STALLED in found
    return found


def test_connecting_is_healthy_until_its_own_limit() -> None:
    made = tracker()
    assert seen(made, 59.0).verdict is Verdict.HEALTHY
    stuck = seen(made, 60.0)
    assert (stuck.verdict, stuck.stalled_for_seconds) == (Verdict.STALLED, 60.0)
    assert "not begun" in stuck.verdict_reason
    assert made.should_abort(60.0) is Verdict.STALLED


def test_a_stalled_download_names_the_layer_and_the_seconds() -> None:
    made = tracker((1.0, downloading(MIB)), (1.0, line("Download complete", B)))
    assert made.should_abort(60.0) is None
    stuck = seen(made, 69.0)
    assert stuck.verdict is Verdict.STALLED
    assert stuck.verdict_reason == f"No byte of layer {A} for 68 s."
    assert stuck.eta_seconds is None
    assert stuck.eta_reason == "stalled"


def test_a_stall_at_the_very_end_is_found_like_any_other() -> None:
    made = tracker((1.0, line("Download complete", B)), (2.0, downloading(100 * MIB - 1)))
    assert made.should_abort(68.0) is Verdict.STALLED
    assert (seen(made, 68.0).percent or 0) < 100


def test_repeated_lines_do_not_hide_a_stall() -> None:
    lines = [(second / 10, downloading(5 * MIB)) for second in range(1, 2000)]
    made = tracker(*lines, store=CONTAINERD, limits=Thresholds(stall_seconds=100))
    assert made.should_abort(99.0) is None
    assert made.should_abort(100.1) is Verdict.STALLED


@pytest.mark.parametrize("zero", ["stall_seconds", "connecting_seconds", "extract_min_seconds"])
def test_zero_means_never(zero: str) -> None:
    made = tracker(limits=Thresholds(**{zero: 0}))
    if zero != "connecting_seconds":
        made.feed(downloading(MIB), 1.0)
    if zero == "extract_min_seconds":
        made.feed(line("Download complete", A), 2.0)
        made.feed(line("Extracting", A), 2.0)
    assert made.should_abort(1e9) is None
    assert seen(made, 1e9).verdict is not Verdict.STALLED


@pytest.mark.parametrize(
    ("store", "rate", "layers", "step"),
    [
        (CLASSIC, 15_000, (A,), 512 * 1024),
        (CLASSIC, 20_000, (A, B), 512 * 1024),
        (CONTAINERD, 20_000, (A,), MIB),
        (CONTAINERD, 20_000, tuple(layer_id(number) for number in range(5)), MIB),
        (PODMAN, 20_000, (A,), 20_000),
    ],
)
def test_a_slow_link_is_not_stuck_by_default(store: StoreKind, rate: int, layers: tuple[str, ...], step: int) -> None:
    plan = plan_of(dict.fromkeys(layers, 100 * MIB))
    made = a_tracker(plan, store=store)
    for layer in layers:
        made.feed(line("Pulling fs layer", layer), 0.0)
    found = judged_each_second(made, link(rate, 1500, step=step, layers=layers), 1500)
    assert found == {Verdict.HEALTHY}


def test_a_link_below_the_floor_crawls_and_is_not_ended_by_default() -> None:
    lines = link(2_000, 1500, step=20_000)
    found = judged_each_second(a_tracker(PLAN), lines, 1500)
    assert found == {Verdict.HEALTHY, Verdict.CRAWLING}


def test_a_crawl_can_be_given_an_end() -> None:
    made = a_tracker(PLAN, thresholds=Thresholds(crawl_abort_seconds=100))
    lines = link(2_000, 1000, step=20_000)
    for second in range(1000):
        while lines and lines[0][0] <= second:
            made.feed(lines.pop(0)[1], float(second))
        if made.should_abort(float(second)):
            break
    assert made.should_abort(float(second)) is Verdict.CRAWLING
    assert second == pytest.approx(10 + 300 + 100, abs=5)
    assert "below the floor of 10000 bytes/s" in seen(made, float(second)).verdict_reason


def test_a_fast_link_that_falls_silent_is_found_within_a_minute_on_the_containerd_store() -> None:
    layers = tuple(layer_id(number) for number in range(5))
    plan = plan_of(dict.fromkeys(layers, 100 * MIB))
    made = tracker(*link(10 * MIB, 15, step=MIB, layers=layers), plan=plan, store=CONTAINERD)
    assert made.should_abort(70.0) is None
    assert made.should_abort(78.0) is Verdict.STALLED


def test_layers_without_a_slot_wait_and_are_not_stuck() -> None:
    made = tracker((1.0, line("Waiting", A)), (1.0, line("Waiting", B)))
    waiting = made.progress(5000.0, seen(made, 1.0).updated_at, behind="pul-7 (busybox)")
    assert waiting.verdict is Verdict.WAITING
    assert "behind pul-7 (busybox)" in waiting.verdict_reason
    assert waiting.eta_reason == "waiting"
    assert made.should_abort(5000.0) is None


def test_waiting_can_be_given_an_end() -> None:
    made = tracker((1.0, line("Waiting", A)), (1.0, line("Waiting", B)), limits=Thresholds(waiting_seconds=100))
    assert made.should_abort(100.0) is None
    assert made.should_abort(101.0) is Verdict.STALLED


def test_who_holds_a_slot_and_is_silent_is_the_one_that_stalls() -> None:
    made = tracker((1.0, downloading(MIB)), (1.0, line("Waiting", B)))
    assert made.should_abort(68.0) is Verdict.STALLED
    assert A in seen(made, 68.0).verdict_reason


def test_after_waiting_long_it_neither_crawls_nor_stalls_at_once() -> None:
    made = tracker((1.0, line("Waiting", A)), (1.0, line("Waiting", B)))
    assert seen(made, 2000.0).verdict is Verdict.WAITING
    made.feed(downloading(1000), 2001.0)
    assert seen(made, 2002.0).verdict is Verdict.HEALTHY
    assert seen(made, 2050.0).verdict is Verdict.HEALTHY


def test_the_engines_countdown_is_retrying_with_its_number_and_seconds() -> None:
    made = tracker((1.0, downloading(MIB)), (100.0, line("Retrying in 10 seconds", A)))
    now = seen(made, 103.0)
    assert (now.verdict, now.retry_in_seconds, now.eta_reason) == (Verdict.RETRYING, 7.0, "retrying")
    assert "retry 1 of 5" in now.verdict_reason


def test_a_countdown_holds_the_stall_off_until_its_end() -> None:
    made = tracker((1.0, line("Retrying in 15 seconds", A)), limits=Thresholds(stall_seconds=5))
    assert made.should_abort(17.9) is None
    assert made.should_abort(20.9) is None
    assert made.should_abort(21.0) is Verdict.STALLED


def test_the_verdict_does_not_flap_between_two_countdowns() -> None:
    made = tracker((1.0, line("Retrying in 1 second", A)))
    assert seen(made, 2.01).verdict is Verdict.RETRYING


def test_a_layer_of_zeros_that_extracts_for_long_is_not_stuck() -> None:
    made = tracker(
        (1.0, line("Download complete", A)),
        (1.0, line("Download complete", B)),
        (2.0, line("Extracting", A, current=100 * MIB, total=100 * MIB)),
        limits=Thresholds(stall_seconds=3),
    )
    assert seen(made, 290.0).verdict is Verdict.HEALTHY
    assert made.should_abort(301.0) is None
    assert made.should_abort(303.0) is Verdict.STALLED


def test_seconds_of_extraction_do_not_hide_that_it_never_ends() -> None:
    lines = [(float(second), line("Extracting", A, current=second, units="s")) for second in range(2, 3000)]
    made = tracker((1.0, line("Download complete", A)), (1.0, line("Download complete", B)), store=CONTAINERD)
    for at, message in lines:
        made.feed(message, at)
        if made.should_abort(at):
            break
    assert at == pytest.approx(302, abs=2)


def test_a_large_layer_has_more_time_to_extract() -> None:
    made = tracker(
        (1.0, line("Download complete", A)),
        (2.0, line("Extracting", A)),
        plan=plan_of({A: 10**10}),
    )
    assert made.should_abort(2000.0) is None
    assert made.should_abort(2003.0) is Verdict.STALLED


def test_between_the_last_download_and_the_end_the_containerd_store_extracts_unseen() -> None:
    made = tracker(
        (1.0, line("Download complete", A)), (1.0, line("Download complete", B)), store=CONTAINERD, limits=Thresholds()
    )
    now = seen(made, 250.0)
    assert (now.verdict, now.phase, now.percent) == (Verdict.HEALTHY, "extracting", 99.9)
    assert now.eta_reason == "this image store does not measure extraction"


def test_a_containerd_store_that_has_all_blobs_unpacks_without_a_word() -> None:
    begun = (1.0, line("Pulling from app", "latest"))
    made = tracker(begun, plan=plan_of({A: 10**10}), store=CONTAINERD)
    assert made.should_abort(2000.0) is None
    assert made.should_abort(2001.0) is Verdict.STALLED
    assert tracker(begun, store=CONTAINERD, limits=Thresholds(stall_seconds=5)).should_abort(6.0) is Verdict.STALLED


def test_extraction_that_moves_keeps_a_quiet_download_healthy() -> None:
    lines: list[Timed] = [(1.0, downloading(MIB, B, 10 * MIB)), (1.0, line("Download complete", A))]
    lines += [
        (float(second), line("Extracting", A, current=second * 1000, total=100 * MIB)) for second in range(2, 600, 10)
    ]
    assert judged_each_second(a_tracker(PLAN), lines, 600) == {Verdict.HEALTHY}


def test_an_engine_that_answers_nothing_else_is_named_before_all() -> None:
    made = tracker((1.0, downloading(MIB)))
    made.daemon_unresponsive = True
    now = seen(made, 5.0)
    assert (now.verdict, now.eta_reason) == (Verdict.DAEMON_UNRESPONSIVE, "daemon-unresponsive")
    assert made.should_abort(5.0) is None
    assert made.should_abort(500.0) is Verdict.DAEMON_UNRESPONSIVE


def test_success_is_healthy_for_ever() -> None:
    made = tracker((1.0, line("Status: Downloaded newer image for a:b")))
    made.daemon_unresponsive = True
    assert seen(made, 1e6).verdict is Verdict.HEALTHY
    assert made.should_abort(1e6) is None


def test_the_silence_is_told_from_its_first_second() -> None:
    made = tracker((10.0, downloading(MIB)))
    assert [seen(made, at).stalled_for_seconds for at in (10.0, 15.0, 40.0)] == [0.0, 5.0, 30.0]
