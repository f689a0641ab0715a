"""Waiting with a deadline, and what it says when the time is over."""

from collections.abc import Callable

import pytest

from tests.rig.eventually import eventually, eventually_sync


def _after(calls: int, early: Callable[[], object]) -> Callable[[], object]:
    left = [calls]

    def check() -> object:
        left[0] -= 1
        return early() if left[0] > 0 else "there"

    return check


def _asserts() -> None:
    raise AssertionError("3 of 5")


def _looks_up() -> object:
    empty: dict[str, object] = {}
    return empty["missing"]


@pytest.mark.parametrize("early", [_asserts, _looks_up, lambda: False])
async def test_waits_until_it_holds(early: Callable[[], object]) -> None:
    assert await eventually(_after(3, early), timeout=5, interval=0.001) == "there"
    assert eventually_sync(_after(3, early), timeout=5, interval=0.001) == "there"


async def test_a_coroutine_function_may_check() -> None:
    async def check() -> int:
        return 4

    assert await eventually(check, timeout=1) == 4


def test_none_and_zero_hold() -> None:
    assert eventually_sync(lambda: None, timeout=0) is None
    assert eventually_sync(lambda: 0, timeout=0) == 0


async def test_the_last_failure_is_shown_with_the_time() -> None:
    with pytest.raises(AssertionError, match="3 of 5") as caught:
        await eventually(_asserts, timeout=0.01, interval=0.001)
    assert caught.value.__notes__ == ["still so after 0.01 s"]
    with pytest.raises(AssertionError, match=r"_refuses\(\) returned False"):
        eventually_sync(_refuses, timeout=0.01, interval=0.001)


def test_other_errors_are_raised_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually_sync(lambda: 1 // 0, timeout=60)


def _refuses() -> bool:
    return False
