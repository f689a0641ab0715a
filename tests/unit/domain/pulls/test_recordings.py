"""Every recorded stream of a real engine, folded: its end, its bytes, and that no number on the way was false."""

import math

import pytest

from tests.unit.domain.pulls.streams import (
    Recording,
    a_tracker,
    assert_sound,
    names,
    plan_for,
    plan_of,
    read,
    replay,
    seen,
)
from towline.domain.progress import LayerPhase, PullPhase, PullProgress, Verdict
from towline.domain.pulls.stores import StoreKind
from towline.domain.pulls.thresholds import Thresholds
from towline.domain.pulls.tracker import PullTracker

SUCCEED = {
    "after_sigkill_repull",
    "all_layers_exist_other_name",
    "blob_500_once",
    "blob_503_once",
    "close_once_midlayer",
    "containerd_lowest_layer_unpacked_before",
    "containerd_plain",
    "containerd_repeated_layer",
    "containerd_repull_after_cancel",
    "containerd_throttled",
    "disconnect_then_repull",
    "dockerd20_rnd300_0",
    "dockerd20_tiny_0",
    "dockerd20_zip300_0",
    "fresh_rnd300_3",
    "ok_via_proxy",
    "partial_layers_exist",
    "repeated_layer",
    "repeated_layer_above_its_prefix",
    "reset_once_midlayer",
    "throttled_rnd300_10MBps_per_conn",
    "two_clients_B_stays",
    "uptodate_tiny",
}
SILENT_END = {
    "containerd_stall",
    "crawl_20kBps",
    "disconnect_alone",
    "dockerd_sigkill_midpull",
    "dockerd_sigterm_midpull",
    "stall_blobheader",
    "stall_midblob",
    "two_clients_A_closes",
}
FAILURES = {
    "bad_authconfig": "unauthorized",
    "bad_reference": "invalid reference format",
    "bad_tag": "invalid tag format",
    "blob_404": "unknown blob",
    "blob_429": "toomanyrequests",
    "blob_500_always": "received unexpected HTTP status: 500",
    "blob_corrupt_always": "filesystem layer verification failed",
    "blob_corrupt_once": "filesystem layer verification failed",
    "config_corrupt": "image config verification failed",
    "conn_refused": "connection refused",
    "containerd_b500": "unexpected status code",
    "containerd_blob404": "failed to copy",
    "containerd_corrupt": "failed commit on ref",
    "containerd_cut_once": "connection reset by peer",
    "containerd_m401": "401",
    "containerd_m404": "not found",
    "containerd_m429": "429",
    "digest_wrong": "manifest unknown",
    "disk_full": "no space left on device",
    "dns_fail": "no such host",
    "manifest_401": "unauthorized",
    "manifest_403": "denied",
    "manifest_404": "manifest unknown",
    "manifest_429": "toomanyrequests",
    "manifest_500": "received unexpected HTTP status: 500",
    "manifest_503_html": "received unexpected HTTP status: 503",
    "manifest_garbage": "invalid character",
    "manifest_reset": "connection reset by peer",
    "ping_401_basic": "no basic auth credentials",
    "ping_401_bearer_deadrealm": "connection refused",
    "repo_404": "manifest unknown",
    "reset_always_midlayer": "connection reset by peer",
    "stall_ping": "context deadline exceeded",
}
PODMAN = {"podman_fresh_rnd300", "podman_rnd300_0", "podman_tiny_0", "podman_uptodate_rnd300", "podman_zip300_0"}


def test_each_recording_has_one_expected_end() -> None:
    groups = [SUCCEED, SILENT_END, set(FAILURES), PODMAN]
    assert sorted(name for group in groups for name in group) == names()


def run(recording: Recording, *, planned: bool) -> tuple[PullTracker, list[PullProgress]]:
    tracker = a_tracker(plan_for(recording) if planned else None, store=recording.store)
    return tracker, list(replay(tracker, recording.lines))


@pytest.mark.parametrize("planned", [False, True], ids=["stream-only", "planned"])
@pytest.mark.parametrize("name", names())
def test_every_number_on_the_way_is_sound(name: str, planned: bool) -> None:
    before: PullProgress | None = None
    for now in run(read(name), planned=planned)[1]:
        assert_sound(before, now)
        before = now


@pytest.mark.parametrize("name", sorted(SUCCEED))
def test_success_is_the_status_line_with_all_bytes_there(name: str) -> None:
    recording = read(name)
    tracker, shown = run(recording, planned=True)
    end = shown[-1]
    assert tracker.succeeded
    assert tracker.fold.digest is not None
    assert (end.phase, end.percent, end.eta_seconds) == (PullPhase.DONE, 100.0, 0.0)
    assert end.bytes_done == end.bytes_total == end.extracted_bytes == plan_for(recording).bytes_to_pull
    assert all(progress.percent != 100.0 for progress in shown[:-1])


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_a_failure_has_the_engines_text(name: str) -> None:
    tracker, shown = run(read(name), planned=False)
    assert not tracker.succeeded
    assert FAILURES[name] in (tracker.failure_text or "")
    assert shown[-1].percent is None


@pytest.mark.parametrize("name", sorted(SILENT_END))
def test_a_stream_that_just_ends_is_neither_success_nor_failure(name: str) -> None:
    tracker, _ = run(read(name), planned=True)
    assert (tracker.succeeded, tracker.failure_text) == (False, None)


@pytest.mark.parametrize("name", sorted(PODMAN))
def test_podman_succeeds_only_when_the_image_was_found(name: str) -> None:
    recording = read(name)
    tracker, shown = run(recording, planned=True)
    assert not tracker.succeeded
    assert (shown[-1].phase, shown[-1].percent) == (PullPhase.EXTRACTING, 99.9)
    tracker.confirm()
    assert seen(tracker, recording.ended_at).percent == 100.0


def test_podman_names_the_config_like_a_layer_and_a_plan_leaves_it_out() -> None:
    recording = read("podman_fresh_rnd300")
    sizes = {layer.short_id: layer.size_bytes for layer in plan_for(recording).layers}
    config = "fe41ae664ebc"
    tracker = a_tracker(plan_of({key: size for key, size in sizes.items() if key != config}), store=StoreKind.PODMAN)
    end = list(replay(tracker, recording.lines))[-1]
    assert config not in tracker.fold.layers
    assert end.layers.total == 7


@pytest.mark.parametrize(("name", "kept"), [("close_once_midlayer", 3_000_000), ("reset_once_midlayer", 98_304)])
def test_a_resume_inside_the_pull_goes_on_from_what_is_there(name: str, kept: int) -> None:
    tracker, shown = run(read(name), planned=True)
    layer = "f7d36c42603c"
    done = [
        one.bytes_done
        for progress in shown
        for one in progress.shown_layers
        if one.id == layer and one.phase is LayerPhase.DOWNLOADING
    ]
    assert done == sorted(done)
    assert kept < done[-1] < 8_391_313
    assert (shown[-1].restarts, shown[-1].retried_bytes) == (0, 0)
    assert tracker.succeeded


def test_layers_that_exist_are_present_and_not_to_be_brought() -> None:
    recording = read("partial_layers_exist")
    for planned in (True, False):
        end = run(recording, planned=planned)[1][-1]
        assert (end.layers.present, end.layers.done) == (1, 6)
        assert end.bytes_total == 314_670_127


def test_a_layer_repeated_above_what_the_agent_holds_is_brought_once_and_restarts_nothing() -> None:
    end = run(read("repeated_layer_above_its_prefix"), planned=True)[1][-1]
    assert (end.bytes_total, end.restarts) == (2_500_991 + 80 + 500_356, 0)
    assert (end.layers.present, end.layers.done) == (1, 3)


def test_a_layer_that_a_dying_pull_was_extracting_restarts_and_says_so() -> None:
    end = run(read("blob_corrupt_once"), planned=True)[1][-1]
    assert (end.restarts, end.retried_bytes) == (1, 8_391_314)


def test_containerd_shows_kept_bytes_as_done_and_does_not_count_them_into_the_rate() -> None:
    recording = read("containerd_repull_after_cancel")
    tracker = a_tracker(plan_for(recording), store=StoreKind.CONTAINERD)
    for at, message in recording.lines:
        if at > 0.2:
            break
        tracker.feed(message, at)
    early = seen(tracker, 0.2)
    assert early.bytes_done == 12_985_760
    assert early.rate_bytes_per_s is None


def test_containerd_passes_over_the_lowest_layer_when_it_was_unpacked_before() -> None:
    sizes = {"fc73ee77b19d": 3_001_184, "6178ed7e3f85": 80, "74552c152f7e": 2_501_022, "25b51e1de079": 500_358}
    tracker = a_tracker(plan_of(sizes), store=StoreKind.CONTAINERD)
    shown = list(replay(tracker, read("containerd_lowest_layer_unpacked_before").lines))
    assert [progress.bytes_done for progress in shown[:5]] == [0, 0, 0, 0, 3_001_264]
    assert (shown[-1].layers.present, shown[-1].layers.done, shown[-1].restarts) == (2, 2, 0)


def verdicts(recording: Recording, thresholds: Thresholds) -> list[tuple[float, Verdict]]:
    """The verdict at each line and each second in between, as a caller who looks once a second sees it; changes only."""
    tracker = a_tracker(plan_for(recording), store=recording.store, thresholds=thresholds)
    due = sorted({float(second) for second in range(math.ceil(recording.ended_at))} | {at for at, _ in recording.lines})
    lines = list(recording.lines)
    found: list[tuple[float, Verdict]] = []
    for at in due:
        while lines and lines[0][0] <= at:
            tracker.feed(lines[0][1], lines.pop(0)[0])
        verdict = seen(tracker, at).verdict
        if not found or found[-1][1] is not verdict:
            found.append((at, verdict))
        if tracker.should_abort(at):
            break
    return found


@pytest.mark.parametrize(
    ("name", "last_byte_at", "limit"), [("stall_midblob", 10.1, 60.0), ("stall_blobheader", 10.1, 60.0)]
)
def test_a_silent_stall_is_found_at_the_threshold(name: str, last_byte_at: float, limit: float) -> None:
    found = verdicts(read(name), Thresholds())
    assert [verdict for _, verdict in found] == [Verdict.HEALTHY, Verdict.STALLED]
    assert found[-1][0] == pytest.approx(last_byte_at + limit, abs=1.0)


def test_a_stall_is_found_among_ten_messages_a_second() -> None:
    recording = read("containerd_stall")
    assert len(recording.lines) > 700
    found = verdicts(recording, Thresholds(stall_seconds=5))
    assert [verdict for _, verdict in found] == [Verdict.HEALTHY, Verdict.STALLED]
    assert found[-1][0] == pytest.approx(5.1, abs=0.2)


def test_the_engines_own_retries_are_retrying_and_never_stalled() -> None:
    found = verdicts(read("blob_500_always"), Thresholds(stall_seconds=3))
    assert {verdict for _, verdict in found} == {Verdict.HEALTHY, Verdict.RETRYING}
    assert len(found) <= 3
    assert found[-1][0] > 74 or found[-1][1] is Verdict.RETRYING


@pytest.mark.parametrize("name", ["crawl_20kBps", "reset_always_midlayer", *sorted(SUCCEED)])
def test_a_slow_or_failing_or_good_pull_is_never_called_stalled_by_default(name: str) -> None:
    assert Verdict.STALLED not in {verdict for _, verdict in verdicts(read(name), Thresholds())}


def test_layers_behind_another_pull_are_waiting() -> None:
    assert Verdict.WAITING in {verdict for _, verdict in verdicts(read("fresh_rnd300_3"), Thresholds())}
