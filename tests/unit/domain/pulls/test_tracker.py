"""What is shown of a pull: the numbers together, attempts, the queue, and a size that stays small."""

from datetime import timedelta

import pytest
from pydantic import TypeAdapter

from tests.unit.domain.pulls.streams import WALL, a_tracker, layer_id, line, plan_of, seen
from towline.domain.progress import MAX_LAYERS_SHOWN, LayerPhase, PullPhase, PullProgress, Verdict
from towline.domain.pulls.plan import PullPlan
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds
from towline.domain.pulls.tracker import Carried, PullTracker

A, B = layer_id(10), layer_id(11)
PLAN = plan_of({A: 1000, B: 200})


def downloading(current: int, layer: str = A, total: int = 1000) -> dict[str, object]:
    return line("Downloading", layer, current=current, total=total)


def test_before_the_first_line_the_total_is_there_and_nothing_is_promised() -> None:
    now = seen(a_tracker(PLAN), 0.0)
    assert (now.phase, now.percent, now.bytes_total, now.rate_bytes_per_s) == (PullPhase.CONNECTING, 0.0, 1200, None)
    assert now.eta_reason == "connecting"


def test_the_percentage_follows_bytes_not_layers() -> None:
    sizes = {layer_id(number): 1000 for number in range(9)}
    made = a_tracker(plan_of({A: 100_000_000} | sizes))
    for layer in sizes:
        made.feed(line("Pull complete", layer), 1.0)
    made.feed(downloading(10_000_000, A, 100_000_000), 1.0)
    assert seen(made, 1.0).percent == 10.0


def test_the_percentage_is_100_only_after_success() -> None:
    made = a_tracker(PLAN)
    for layer in (A, B):
        made.feed(line("Pull complete", layer), 1.0)
    assert seen(made, 1.0).percent == 99.9
    made.feed(line("Status: Downloaded newer image for a:b"), 2.0)
    assert (seen(made, 2.0).percent, seen(made, 2.0).phase) == (100.0, PullPhase.DONE)


@pytest.mark.parametrize("plan", [None, plan_of({A: 1000, B: 200}, final=False)])
def test_without_a_final_total_there_is_no_percentage_and_no_eta(plan: PullPlan | None) -> None:
    made = a_tracker(plan)
    for second in range(1, 10):
        made.feed(downloading(second * 10), float(second))
    now = seen(made, 10.0)
    assert (now.percent, now.total_is_final, now.eta_reason) == (None, False, "the total is unknown")
    assert now.rate_bytes_per_s is not None


def test_nothing_to_bring_divides_by_nothing() -> None:
    made = a_tracker(plan_of({A: 1000}, present=[A]))
    assert seen(made, 0.0).percent == 99.9
    made.feed(line("Status: Image is up to date for a:b"), 1.0)
    now = seen(made, 1.0)
    assert (now.percent, now.bytes_total, now.bytes_done, now.bytes_present) == (100.0, 0, 0, 1000)


def test_rate_and_eta_of_a_steady_pull() -> None:
    made = a_tracker(plan_of({A: 100_000_000}))
    for second in range(11):
        made.feed(downloading(second * 1_000_000, A, 100_000_000), float(second))
    now = seen(made, 10.0)
    assert now.rate_bytes_per_s == pytest.approx(1_000_000, rel=0.01)
    assert now.eta_seconds == pytest.approx(92, abs=1)
    assert now.eta_reason == ""


def test_tiny_layers_do_not_hold_the_percentage_at_nothing() -> None:
    made = a_tracker(plan_of({layer_id(1): 32, A: 1000, layer_id(2): 93, layer_id(3): 0}))
    made.feed(downloading(500), 1.0)
    assert (seen(made, 1.0).percent or 0) > 40


def test_a_queued_pull_shows_its_place() -> None:
    now = a_tracker(PLAN).progress(0.0, WALL, waiters=3, queue_position=2, behind="alpine")
    assert (now.phase, now.verdict, now.queue_position, now.waiters) == (PullPhase.QUEUED, Verdict.WAITING, 2, 3)
    assert now.verdict_reason == "Number 2 in this agent's queue; behind alpine."
    assert now.eta_reason == "waiting"


def test_between_two_attempts_the_countdown_and_the_reason_are_shown() -> None:
    made = a_tracker(PLAN)
    made.feed(downloading(100), 1.0)
    made.back_off(12.0, "connection reset by peer")
    now = seen(made, 5.0)
    assert (now.phase, now.verdict, now.retry_in_seconds) == (PullPhase.RETRYING, Verdict.RETRYING, 7.0)
    assert now.verdict_reason == "Attempt 1 of 3 failed. connection reset by peer"
    assert made.should_abort(1e6) is None


def second_attempt(first: PullTracker, store: StoreKind) -> PullTracker:
    return a_tracker(PLAN, store=store, carried=first.carry(), attempt=2)


def test_the_classic_store_loses_a_failed_attempts_bytes_and_it_is_told() -> None:
    first = a_tracker(PLAN)
    first.feed(downloading(700), 1.0)
    now = seen(second_attempt(first, StoreKind.CLASSIC), 2.0)
    assert (now.bytes_done, now.restarts, now.retried_bytes, now.attempt) == (0, 1, 700, 2)


def test_a_third_attempt_adds_to_the_account() -> None:
    first = a_tracker(PLAN)
    first.feed(downloading(700), 1.0)
    second = second_attempt(first, StoreKind.CLASSIC)
    second.feed(downloading(50), 2.0)
    assert second.carry() == Carried(retried_bytes=750, restarts=2)


def test_an_attempt_that_brought_nothing_loses_nothing() -> None:
    assert a_tracker(PLAN).carry() == Carried()


def test_the_containerd_store_keeps_them_and_nothing_falls() -> None:
    first = a_tracker(PLAN, store=StoreKind.CONTAINERD)
    first.feed(downloading(700), 1.0)
    first.feed(line("Download complete", B), 1.0)
    before = seen(first, 1.0)
    second = second_attempt(first, StoreKind.CONTAINERD)
    assert seen(second, 2.0).bytes_done == before.bytes_done == 900
    second.feed(downloading(800), 3.0)
    now = seen(second, 3.0)
    assert (now.bytes_done, now.restarts, now.retried_bytes) == (1000, 0, 0)


def test_an_attempt_that_has_only_to_unpack_what_was_kept_is_extracting() -> None:
    first = a_tracker(PLAN, store=StoreKind.CONTAINERD)
    for layer in (A, B):
        first.feed(line("Download complete", layer), 1.0)
    second = second_attempt(first, StoreKind.CONTAINERD)
    second.feed(line("Pulling from app", "latest"), 2.0)
    now = seen(second, 250.0)
    assert (now.phase, now.verdict, now.percent) == (PullPhase.EXTRACTING, Verdict.HEALTHY, 99.9)


def test_layers_that_jump_to_the_end_count_into_the_rate() -> None:
    sizes = {layer_id(number): 1_000_000 for number in range(20)}
    made = a_tracker(plan_of(sizes), store=StoreKind.CONTAINERD)
    for layer in sizes:
        made.feed(line("Pulling fs layer", layer), 0.0)
    for second, layer in enumerate(list(sizes)[:10], start=1):
        made.feed(line("Download complete", layer), float(second))
    assert seen(made, 10.0).rate_bytes_per_s == pytest.approx(1_000_000, rel=0.01)


def test_kept_bytes_that_are_gone_after_all_are_a_restart() -> None:
    first = a_tracker(PLAN, store=StoreKind.CONTAINERD)
    first.feed(downloading(700), 1.0)
    second = second_attempt(first, StoreKind.CONTAINERD)
    second.feed(downloading(100), 3.0)
    now = seen(second, 3.0)
    assert (now.bytes_done, now.restarts, now.retried_bytes) == (100, 1, 700)


@pytest.mark.parametrize("layers", [1, 100, 1000])
def test_a_progress_is_small_whatever_the_image(layers: int) -> None:
    sizes = {layer_id((1 << 40) + number): 9_876_543_210 for number in range(layers)}
    made = PullTracker(
        pull_id="pul-0123456789abcdef",
        image="r" * 200 + ".example.com/" + "n" * 42 + "@sha256:" + "a" * 64,
        agent_id="a" * 63,
        plan=plan_of(sizes),
        store=StoreKind.CLASSIC,
        thresholds=Thresholds(),
        started_at=WALL,
        begun_at=0.0,
    )
    for layer in sizes:
        made.feed(downloading(1_234_567_890, layer, 9_876_543_210), 1.0)
        made.feed(line("Extracting", layer, current=1_234_567_890, total=9_876_543_210), 1.5)
    made.back_off(1e6, "é" * 5_000)
    now = made.progress(2.0, WALL + timedelta(microseconds=123456), waiters=9_999)
    assert len(now.shown_layers) == min(layers, MAX_LAYERS_SHOWN)
    assert len(TypeAdapter(PullProgress).dump_json(now)) <= 4096


def test_the_layers_shown_are_those_at_work_in_the_images_order() -> None:
    names = [layer_id(number) for number in range(30)]
    made = a_tracker(plan_of(dict.fromkeys(names, 100)))
    for layer in names[:10]:
        made.feed(line("Pull complete", layer), 1.0)
    for layer in (names[20], names[12]):
        made.feed(downloading(5, layer, 100), 2.0)
    shown = seen(made, 2.0).shown_layers
    assert [layer.id for layer in shown] == sorted(layer.id for layer in shown)
    assert [layer.id for layer in shown if layer.phase is LayerPhase.DOWNLOADING] == [names[12], names[20]]
    assert all(layer.phase is not LayerPhase.DONE for layer in shown)


def test_a_progress_survives_the_way_over_the_wire() -> None:
    made = a_tracker(PLAN)
    made.feed(downloading(100), 1.0)
    adapter = TypeAdapter(PullProgress)
    now = seen(made, 1.0)
    assert adapter.validate_json(adapter.dump_json(now)) == now


def test_an_early_small_layer_does_not_make_the_host_slow_at_extracting() -> None:
    made = a_tracker(plan_of({A: 1000, B: 1_000_000}))
    made.feed(line("Extracting", A, current=900, total=1000), 0.1)
    made.feed(line("Extracting", A, current=1000, total=1000), 0.2)
    made.feed(line("Pull complete", A), 0.3)
    for second in range(1, 9):
        made.feed(downloading(second * 100_000, B, 1_000_000), float(second))
    assert seen(made, 8.0).eta_seconds == pytest.approx(2.0, abs=0.7)
