"""The fold, line by line: each test names one thing that engines say."""

from collections.abc import Mapping

import pytest

from tests.unit.domain.pulls.streams import layer_id, line, plan_of
from towline.domain.progress import LayerCounts, LayerPhase, PullPhase
from towline.domain.pulls.fold import PullFold
from towline.domain.pulls.plan import PullPlan
from towline.domain.pulls.stores import StoreKind

A, B, C = layer_id(10), layer_id(11), layer_id(12)
PLAN = plan_of({A: 1000, B: 200})


def fold(
    *messages: Mapping[str, object], plan: PullPlan | None = PLAN, store: StoreKind = StoreKind.CLASSIC
) -> PullFold:
    """A fold that was fed one message a second."""
    made = PullFold(plan, store)
    for second, message in enumerate(messages):
        made.feed(message, float(second))
    return made


def done(made: PullFold) -> tuple[int, int, int]:
    totals = made.totals()
    return totals.bytes_done, totals.restarts, totals.retried_bytes


def downloading(current: int | None, total: int | None, layer: str = A) -> dict[str, object]:
    return line("Downloading", layer, current=current, total=total)


def test_the_total_is_known_before_the_first_line() -> None:
    totals = fold().totals()
    assert (totals.bytes_total, totals.total_is_final, totals.bytes_done) == (1200, True, 0)
    assert fold().phase is PullPhase.CONNECTING


def test_bytes_count_as_they_come() -> None:
    assert done(fold(downloading(100, 1000), downloading(50, 200, B))) == (150, 0, 0)


def test_a_resume_shrinks_the_total_and_counts_from_what_is_there() -> None:
    made = fold(downloading(100, 1000), line("Retrying in 5 seconds", A), downloading(10, 400))
    assert done(made) == (610, 0, 0)


def test_a_second_resume_counts_from_further_on() -> None:
    retry = line("Retrying in 5 seconds", A)
    assert done(fold(downloading(100, 1000), retry, downloading(10, 400), retry, downloading(5, 100))) == (905, 0, 0)


def test_a_retry_from_zero_is_announced_with_the_bytes_lost() -> None:
    made = fold(downloading(600, 1000), line("Retrying in 5 seconds", A), downloading(10, 1000))
    assert done(made) == (10, 1, 600)


def test_a_retry_from_zero_that_has_already_overtaken_is_announced_too() -> None:
    made = fold(downloading(100, 1000), line("Retrying in 5 seconds", A), downloading(300, 1000))
    assert done(made) == (300, 1, 100)


def test_a_retry_before_the_first_byte_loses_nothing() -> None:
    assert done(fold(line("Retrying in 5 seconds", A), downloading(10, 1000))) == (10, 0, 0)


def test_while_retrying_the_bytes_that_came_are_kept() -> None:
    assert done(fold(downloading(100, 1000), line("Retrying in 5 seconds", A))) == (100, 0, 0)


@pytest.mark.parametrize("after", [line("Retrying in 5 seconds", A), {"errorDetail": {"message": "cut"}}])
def test_the_false_claim_of_a_closed_copy_neither_counts_nor_shows(after: Mapping[str, object]) -> None:
    made = fold(downloading(100, 1000), downloading(1000, 1000))
    assert done(made) == (100, 0, 0)
    made.feed(after, 2.0)
    assert done(made) == (100, 0, 0)


def test_the_false_claim_after_a_resume_does_not_show_either() -> None:
    made = fold(downloading(100, 1000), line("Retrying in 5 seconds", A), downloading(400, 400))
    assert done(made) == (600, 0, 0)


@pytest.mark.parametrize("confirmation", ["Verifying Checksum", "Download complete", "Extracting", "Pull complete"])
def test_a_whole_layer_counts_once_the_engine_confirms_it(confirmation: str) -> None:
    assert done(fold(downloading(1000, 1000), line(confirmation, A)))[0] == 1000


def test_a_checksum_that_does_not_match_is_a_restart() -> None:
    made = fold(downloading(900, 1000), line("Verifying Checksum", A), line("Retrying in 5 seconds", A))
    assert done(made) == (0, 1, 1000)
    made.feed(downloading(1, 1000), 3.0)
    assert done(made) == (1, 1, 1000)


def test_a_small_layer_may_jump_straight_to_the_end() -> None:
    lines = (line("Pulling fs layer", B), line("Pulling fs layer", A), line("Download complete", B))
    assert done(fold(*lines, store=StoreKind.CONTAINERD)) == (200, 0, 0)


def test_containerd_is_silent_about_the_lowest_layers_that_it_has_unpacked_before() -> None:
    made = fold(line("Pulling fs layer", B), store=StoreKind.CONTAINERD)
    assert done(made) == (0, 0, 0)
    made.feed(downloading(50, 200, B), 1.0)
    assert (done(made), made.totals().layers.present) == ((1050, 0, 0), 1)


def test_a_layer_thought_to_be_kept_that_is_pulled_after_all_restarts() -> None:
    made = fold(downloading(50, 200, B), line("Pulling fs layer", A), store=StoreKind.CONTAINERD)
    assert done(made) == (50, 1, 1000)


def test_seconds_of_extraction_are_no_bytes() -> None:
    made = fold(
        line("Download complete", A),
        line("Extracting", A, current=3, units="s"),
        line("Extracting", A, current=4, units="s"),
        store=StoreKind.CONTAINERD,
    )
    totals = made.totals()
    assert (totals.bytes_total, totals.bytes_done, totals.extracted_bytes) == (1200, 1000, 0)
    assert made.last_change_at == 1.0


def test_download_and_extraction_are_counted_apart() -> None:
    made = fold(line("Download complete", A), line("Extracting", A, current=300, total=1000), downloading(50, 200, B))
    totals = made.totals()
    assert (totals.bytes_done, totals.extracted_bytes) == (1050, 300)


def test_a_tag_that_looks_like_a_layer_is_none() -> None:
    made = fold(line("Pulling from app", "0123456789ab"), plan=None)
    assert made.layers == {}
    assert made.connected


@pytest.mark.parametrize("odd", ["latest", "sha256:0123456789ab", "0123456789a", "0123456789AB", ""])
def test_an_id_that_is_no_layers_makes_none(odd: str) -> None:
    assert fold(line("Downloading", odd, current=1, total=2), plan=None).layers == {}


def test_with_a_plan_a_foreign_layer_is_left_out() -> None:
    assert done(fold(downloading(7, 10, C)))[0] == 0


def test_a_full_digest_is_the_same_layer() -> None:
    assert done(fold(downloading(7, 1000, A + "0" * 52)))[0] == 7


def test_without_a_plan_the_total_is_a_lower_bound_that_never_falls() -> None:
    made = fold(line("Pulling fs layer", A), plan=None)
    assert made.totals().bytes_total is None
    seen = []
    for message in (downloading(10, 100), downloading(5, 900, B), line("Retrying in 1 second", A), downloading(1, 60)):
        made.feed(message, 1.0)
        seen.append((made.totals().bytes_total, made.totals().total_is_final))
    assert seen == [(100, False), (1000, False), (1000, False), (1000, False)]


def test_bytes_of_unknown_length_count_and_bound_the_total() -> None:
    totals = fold(downloading(549_376, None), plan=None).totals()
    assert (totals.bytes_done, totals.bytes_total) == (549_376, 549_376)


def test_bytes_of_unknown_length_after_a_retry_add_to_what_was_there() -> None:
    assert done(fold(downloading(100, 1000), line("Retrying in 1 second", A), downloading(5, None))) == (105, 0, 0)


def test_the_manifests_size_wins() -> None:
    totals = fold(downloading(1500, 2000)).totals()
    assert (totals.bytes_total, totals.bytes_done) == (1200, 0)


def test_a_zero_byte_layer_and_an_empty_image() -> None:
    made = fold(line("Download complete", A), line("Status: Downloaded newer image for a:b"), plan=plan_of({A: 0}))
    assert (made.succeeded, made.totals().bytes_total, made.totals().bytes_done) == (True, 0, 0)
    assert fold(plan=plan_of({})).totals().layers == LayerCounts()


def test_two_layers_of_equal_size_are_told_apart() -> None:
    made = fold(downloading(10, 500), downloading(20, 500, B), plan=plan_of({A: 500, B: 500}))
    assert [layer.done for layer in made.layers.values()] == [10, 20]


@pytest.mark.parametrize("said", ["Already exists", "Exists"])
def test_what_exists_is_outside_of_what_has_to_be_brought(said: str) -> None:
    made = fold(line(said, A), downloading(20, 200, B), plan=None)
    totals = made.totals()
    assert (totals.bytes_total, totals.bytes_done, totals.layers.present) == (200, 20, 1)


def test_what_exists_though_the_plan_missed_it_is_done_and_the_total_stands() -> None:
    totals = fold(line("Already exists", A)).totals()
    assert (totals.bytes_total, totals.bytes_done, totals.restarts) == (1200, 1000, 0)


def test_what_comes_though_the_plan_had_it_raises_the_total_and_says_so() -> None:
    plan = plan_of({A: 1000, B: 200}, present=[A])
    made = fold(downloading(50, 200, B), downloading(100, 1000), plan=plan)
    totals = made.totals()
    assert (totals.bytes_total, totals.bytes_present, totals.bytes_done, totals.restarts) == (1200, 0, 150, 1)


def twice(*messages: Mapping[str, object]) -> PullFold:
    """A fold of an image that has layer B at two places."""
    return fold(*messages, plan=plan_of({A: 1000, B: 200}, twice=[B]))


def test_a_layer_with_a_place_below_and_a_place_above_is_brought_without_a_restart() -> None:
    made = twice(line("Already exists", B), line("Pulling fs layer", B), downloading(20, 200, B))
    assert done(made) == (20, 0, 0)


def test_extracting_a_layer_at_its_second_place_is_a_sign_of_life_and_changes_no_sum() -> None:
    made = twice(line("Pull complete", B), line("Extracting", B, current=5, total=200))
    made.feed(line("Extracting", B, current=9, total=200), 7.0)
    assert made.last_change_at == 7.0
    assert made.totals().extracted_bytes == 200


ODD_MESSAGES: list[Mapping[str, object]] = [
    {},
    {"status": None},
    {"status": 7, "id": A},
    {"status": "", "id": A},
    {"status": "Downloading"},
    {"status": "Downloading", "id": None, "progressDetail": {"current": 5, "total": 10}},
    {"status": "Downloading", "id": 12, "progressDetail": {"current": 5}},
    {"status": "Downloading", "id": A},
    {"status": "Downloading", "id": A, "progressDetail": None},
    {"status": "Downloading", "id": A, "progressDetail": "half"},
    {"status": "Downloading", "id": A, "progressDetail": {"current": "5", "total": []}},
    {"status": "Downloading", "id": A, "progressDetail": {"current": -5, "total": -1}},
    {"status": "Downloading", "id": A, "progressDetail": {"current": float("nan"), "total": float("inf")}},
    {"status": "Retrying in a while", "id": A},
    {"status": "Sorcery", "id": A, "progressDetail": {"current": 3, "total": 4}},
    {"aux": {"ID": "x"}},
    {"errorDetail": None, "status": "Waiting", "id": A},
]


@pytest.mark.parametrize("message", ODD_MESSAGES)
def test_an_odd_line_never_raises_and_counts_nothing(message: Mapping[str, object]) -> None:
    made = fold(message)
    assert done(made) == (0, 0, 0)
    assert made.failure_text is None


def test_what_is_not_understood_is_kept_for_a_log_once_and_not_without_end() -> None:
    made = fold(*[line(f"Sorcery {number}", A) for number in (1, 1, *range(50))])
    assert made.odd_lines[:3] == ["Sorcery 1", "Sorcery 0", "Sorcery 2"]
    assert len(made.odd_lines) == 8


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"errorDetail": {"message": "new"}, "error": "old"}, "new"),
        ({"errorDetail": {"code": 7}, "error": "old"}, "old"),
        ({"error": "old"}, "old"),
        ({"message": "manifest unknown"}, "manifest unknown"),
        ({"errorDetail": {"code": 7}}, "the engine reported an error without a text"),
    ],
)
def test_the_error_is_read_from_its_detail_first(message: Mapping[str, object], text: str) -> None:
    made = fold(message)
    assert (made.failure_text, made.succeeded) == (text, False)


def test_success_needs_the_status_line_and_no_error() -> None:
    end = line("Status: Image is up to date for a:b")
    assert not fold(line("Digest: sha256:" + "a" * 64)).succeeded
    assert fold(end).succeeded
    assert not fold(end, {"errorDetail": {"message": "late"}}).succeeded


@pytest.mark.parametrize("layer", [A, C, "latest"])
def test_a_status_line_with_an_id_is_no_success(layer: str) -> None:
    assert not fold(line("Status: odd", layer)).succeeded


def test_the_digest_is_read() -> None:
    assert fold(line("Digest: sha256:" + "a" * 64)).digest == "sha256:" + "a" * 64


def test_success_makes_all_layers_done_whatever_was_counted() -> None:
    totals = fold(downloading(900, 1000), line("Status: Downloaded newer image for a:b")).totals()
    assert (totals.bytes_done, totals.extracted_bytes, totals.layers.done) == (1200, 1200, 2)


def test_the_newer_containerd_lines_are_understood() -> None:
    made = fold(
        line("Waiting", A), line("Pulling layer fs", A, current=400, total=1000), plan=PLAN, store=StoreKind.CONTAINERD
    )
    assert done(made)[0] == 400
    assert made.layers[A].phase is LayerPhase.DOWNLOADING


@pytest.mark.parametrize(
    ("messages", "phase"),
    [
        ([line("Pulling from a", "latest")], PullPhase.DOWNLOADING),
        ([downloading(1, 1000), line("Retrying in 5 seconds", B)], PullPhase.DOWNLOADING),
        ([line("Download complete", A), line("Retrying in 5 seconds", B)], PullPhase.RETRYING),
        ([line("Extracting", A), line("Waiting", B)], PullPhase.EXTRACTING),
        ([line("Pull complete", A), line("Download complete", B)], PullPhase.EXTRACTING),
        ([line("Status: Downloaded newer image for a:b")], PullPhase.DONE),
    ],
)
def test_the_phase_is_that_of_the_layers_that_hold_it_up(
    messages: list[Mapping[str, object]], phase: PullPhase
) -> None:
    assert fold(*messages).phase is phase


def test_repeated_lines_change_nothing() -> None:
    made = fold(downloading(100, 1000), downloading(100, 1000), downloading(100, 1000), store=StoreKind.CONTAINERD)
    assert made.last_change_at == 0.0


def test_the_engines_retries_are_numbered() -> None:
    made = fold(*[line(f"Retrying in {seconds} seconds", A) for seconds in (3, 2, 1, 10, 9)])
    assert (made.layers[A].retries, made.layers[A].retry_until) == (2, 13.0)
