"""An event loop in a thread of its own: for servers that tests with and without a loop use alike."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

_CALL_SECONDS: Final = 15.0

T = TypeVar("T")


class LoopThread:
    """Runs from its making to `end`. A daemon thread: it never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for its result. Not to be called in that thread itself."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)

    def call(self, action: Callable[[], T]) -> T:
        """Call a function there, where it cannot interleave with the server's own steps."""

        async def act() -> T:
            return action()

        return self.run(act())

    def end(self) -> None:
        """Cancel what runs there, and end the thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
