"""Waiting in tests for what happens soon. The only place in the tests that sleeps."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final


async def eventually(check: Callable[[], Any], *, timeout: float, interval: float = 0.05) -> Any:
    """Call `check` (plain, or a coroutine function) until it holds, and return its result.

    It does not hold yet when it raises `AssertionError` or `LookupError`, or returns `False`; any other error is raised at once.
    `timeout` and `interval` in seconds. When the time is over, raises what the last call raised, or an `AssertionError`.
    """
    wait = _Wait(check, timeout)
    while True:
        try:
            result = check()
            return wait.judged(await result if inspect.isawaitable(result) else result)
        except (AssertionError, LookupError) as error:
            wait.go_on_or_raise(error)
        await asyncio.sleep(interval)


def eventually_sync(check: Callable[[], Any], *, timeout: float, interval: float = 0.05) -> Any:
    """The same for tests without an event loop; `check` is a plain function."""
    wait = _Wait(check, timeout)
    while True:
        try:
            return wait.judged(check())
        except (AssertionError, LookupError) as error:
            wait.go_on_or_raise(error)
        time.sleep(interval)


class _Wait:
    def __init__(self, check: Callable[[], Any], timeout: float) -> None:
        self._check: Final = check
        self._timeout: Final = timeout
        self._deadline: Final = time.monotonic() + timeout

    def judged(self, result: Any) -> Any:
        if result is False:
            name = getattr(self._check, "__name__", repr(self._check))
            raise AssertionError(f"{name}() returned False")
        return result

    def go_on_or_raise(self, error: AssertionError | LookupError) -> None:
        if time.monotonic() > self._deadline:
            error.add_note(f"still so after {self._timeout:g} s")
            raise error
