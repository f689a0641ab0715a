"""What is shown of a pull."""

import io
from typing import Any

import pytest
from rich.console import Console

from tests.unit.cli.values import pull
from towline.cli.output import duration, harmless, size
from towline.cli.progress import BarDisplay, LineDisplay, summary


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "downloading 25.0% 50.0 MB/200.0 MB, 10.0 MB/s, 15s left"),
        ({"percent": None, "bytes_total": None, "eta_seconds": None}, "downloading 50.0 MB/?, 10.0 MB/s"),
        ({"phase": "done", "percent": 100.0, "rate_bytes_per_s": None}, "done 100.0% 50.0 MB/200.0 MB"),
        ({"bytes_present": 1_500_000_000}, ", 1.5 GB there already,"),
        ({"attempt": 2}, ", attempt 2 of 3"),
        ({"retried_bytes": 3_000_000}, ", 3.0 MB brought again"),
        ({"waiters": 5}, ", 5 waiting"),
        ({"queue_position": 2}, ", number 2 in the queue"),
        ({"verdict": "stalled", "verdict_reason": "no byte for 61 s"}, ", stalled: no byte for 61 s"),
    ],
)
def test_a_summary_says_what_matters(fields: dict[str, Any], text: str) -> None:
    assert text in summary(pull(**fields))


def test_lines_come_on_change_and_once_a_second_for_each_pull() -> None:
    out, now = io.StringIO(), [0.0]
    display = LineDisplay(out, clock=lambda: now[0])
    for at, percent in ((0.0, 1.0), (0.5, 2.0), (1.0, 3.0), (2.5, 3.0), (2.6, 4.0)):
        now[0] = at
        display.show(pull(percent=percent))
    display.show(pull(pull_id="other", percent=50.0))
    display.show(pull(percent=100.0, phase="done"))
    shown = [line.split("%")[0].rsplit(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert shown == ["1.0", "3.0", "4.0", "50.0", "100.0"]


def test_a_failed_attempt_is_told_once_not_each_second_of_its_countdown() -> None:
    out, now = io.StringIO(), [0.0]
    display = LineDisplay(out, clock=lambda: now[0])
    for attempt in (1, 2):
        for seconds in (8, 7, 6):
            now[0] += 1.0
            fields = {"phase": "retrying", "verdict": "retrying", "verdict_reason": f"Attempt {attempt} of 3 failed."}
            display.show(pull(**fields, attempt=attempt, retry_in_seconds=float(seconds)))
    shown = [line.rpartition(", ")[2] for line in out.getvalue().splitlines()]
    assert shown == ["retrying in 8s: Attempt 1 of 3 failed.", "retrying in 8s: Attempt 2 of 3 failed."]


def test_bars_show_the_whole_and_each_layer_at_work() -> None:
    out = io.StringIO()
    layers = [
        {"id": "aaaaaaaaaaaa", "phase": "present", "bytes_done": 5, "bytes_total": 5, "extracted_bytes": 0},
        {"id": "bbbbbbbbbbbb", "phase": "downloading", "bytes_done": 4_000, "bytes_total": 8_000, "extracted_bytes": 0},
        {
            "id": "cccccccccccc",
            "phase": "extracting",
            "bytes_done": 9_000,
            "bytes_total": 9_000,
            "extracted_bytes": 3_000,
        },
    ]
    with BarDisplay(Console(file=out, force_terminal=True, width=140)) as bars:
        bars.show(pull(shown_layers=layers, verdict="stalled", verdict_reason="[red]not markup[/red]"))
    shown = out.getvalue()
    assert "[red]not markup[/red]" in shown
    assert "aaaaaaaaaaaa" not in shown
    assert "downloading 4.0 kB/8.0 kB" in shown
    assert "extracting 3.0 kB/9.0 kB" in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "?"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2.5e12, "2.5 TB"), (1e16, "10000.0 TB")],
)
def test_sizes(value: float | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "?"), (0.4, "0s"), (59.6, "1m00s"), (3599, "59m59s"), (7260, "2h01m")]
)
def test_durations(value: float | None, text: str) -> None:
    assert duration(value) == text


def test_harmless_text_stays_as_it_is() -> None:
    assert harmless("Größe 中文 → ✓") == "Größe 中文 → ✓"
    assert harmless("a\nb\tc\x1b[0m\x9b\ud800") == "a�b�c�[0m��"
