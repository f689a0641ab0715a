"""Ordered stop of a worker process."""

import asyncio
import signal


def stop_requested() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. Call it in the running loop, once per process."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event
