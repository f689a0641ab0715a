"""Sizes on the fault registry's command line."""

import pytest
import typer

from tests.rig.faults.__main__ import size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("300", 300), ("20kB", 20_000), ("10MB", 10_000_000), ("1.5M", 1_500_000), ("2 gb", 2_000_000_000), ("7B", 7)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "fast", "10MiB", "-3MB", "1,5MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a size"):
        size_bytes(text)
