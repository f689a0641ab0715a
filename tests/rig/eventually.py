"""Waiting in tests for what happens soon. The only place in the tests that sleeps."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


async def eventually(check: Callable[[], Any], *, timeout: float, interval: float = 0.05) -> Any:
    """Call `check` (plain, or a coroutine function) until it does not raise `AssertionError` (or `LookupError`), and return its result.

    `timeout` and `interval` in seconds. Raises the last error when the time is over.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            result = check()
            return await result if inspect.isawaitable(result) else result
        except (AssertionError, LookupError) as error:
            if time.monotonic() > deadline:
                error.add_note(f"still so after {timeout:g} s")
                raise
        await asyncio.sleep(interval)
