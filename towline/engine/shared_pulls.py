"""One transfer per key for any number of waiters.

A shared pull outlives its first waiter, and ends with its last. A waiter that leaves harms no other; when the last one has
left, the transfer is aborted, and that waiter's cancellation completes only when the abort is acknowledged.
"""

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Job(Protocol[T_co]):
    """The work of one pull."""

    async def run(self, on_change: Callable[[], None]) -> T_co:
        """Do it, calling `on_change` whenever there is something new to show. Cancelled: stop, and return when stopped."""
        ...


J = TypeVar("J", bound=Job[object])

_PASSED_OVER_MAX: Final = 8
"""A queued pull that was passed over this often by later ones goes first, whatever its priority: nobody starves."""


@dataclass(kw_only=True)
class Waiter(Generic[J]):
    """Who waits. `on_change` is told whenever the pull has something new to show."""

    name: str
    priority: int
    on_change: Callable[["SharedPull[J]"], None]


class SharedPull(Generic[J]):
    """A pull under way or in the queue (`queue_position` 1 is next)."""

    def __init__(self, key: Hashable, order: int, job: J) -> None:
        self.key: Final = key
        self.order: Final = order
        self.job: Final = job
        self.waiters: list[Waiter[J]] = []
        self.queue_position: int | None = None
        self.passed_over = 0
        self.leaving = False
        self.task: asyncio.Task[object] | None = None

    @property
    def priority(self) -> int:
        """The highest of its waiters'."""
        return max((waiter.priority for waiter in self.waiters), default=0)

    @property
    def names(self) -> frozenset[str]:
        """Who waits, each once."""
        return frozenset(waiter.name for waiter in self.waiters)

    def notify(self) -> None:
        """Tell every waiter that there is something new."""
        for waiter in tuple(self.waiters):
            waiter.on_change(self)


class SharedPulls(Generic[J]):
    """The pulls of one agent process: at most `limit` unique ones at once, the others in a visible queue."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._pulls: dict[Hashable, SharedPull[J]] = {}
        self._running = 0
        self._queue: list[tuple[SharedPull[J], asyncio.Future[None]]] = []
        self._orders = itertools.count()

    def running(self) -> list[SharedPull[J]]:
        """Every pull that holds a slot, oldest first."""
        queued = {pull.key for pull, _ in self._queue}
        return [pull for pull in self._pulls.values() if pull.key not in queued]

    async def join(self, key: Hashable, waiter: Waiter[J], make: Callable[[], J]) -> object:
        """Wait for the pull of `key`, beginning it with `make` if none is under way.

        Returns or raises what the job does. Cancelled: leaves.
        """
        pull = await self._enter(key, make)
        pull.waiters.append(waiter)
        self._reorder()
        assert pull.task is not None
        try:
            return await asyncio.shield(pull.task)
        finally:
            await self._leave(pull, waiter)

    async def _enter(self, key: Hashable, make: Callable[[], J]) -> SharedPull[J]:
        while (pull := self._pulls.get(key)) is not None and pull.leaving:
            # Its last waiter has left; what comes now begins anew, once the old transfer is really over.
            assert pull.task is not None
            await asyncio.wait({pull.task})
        if pull is None:
            pull = SharedPull(key, next(self._orders), make())
            self._pulls[key] = pull
            # A context of its own: the pull may outlive the activity that began it.
            pull.task = asyncio.create_task(self._run(pull), context=contextvars.Context())
        return pull

    async def _leave(self, pull: SharedPull[J], waiter: Waiter[J]) -> None:
        pull.waiters.remove(waiter)
        task = pull.task
        assert task is not None
        if pull.waiters or task.done():
            pull.notify()
            return
        pull.leaving = True
        task.cancel()
        await asyncio.wait({task})

    async def _run(self, pull: SharedPull[J]) -> object:
        try:
            await self._take_slot(pull)
            try:
                return await pull.job.run(pull.notify)
            finally:
                self._running -= 1
                self._hand_out_slots()
        finally:
            # Only its own entry: under the same key another pull may stand by now.
            if self._pulls.get(pull.key) is pull:
                del self._pulls[pull.key]

    async def _take_slot(self, pull: SharedPull[J]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (pull, turn)
        self._queue.append(entry)
        self._hand_out_slots()
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._queue:
                self._queue.remove(entry)
            elif turn.done() and not turn.cancelled():
                self._running -= 1
            self._hand_out_slots()
            raise

    def _hand_out_slots(self) -> None:
        while self._queue and self._running < self._limit:
            entry = self._in_order()[0]
            self._queue.remove(entry)
            pull, turn = entry
            for other, _ in self._queue:
                other.passed_over += other.order < pull.order
            self._running += 1
            pull.queue_position = None
            turn.set_result(None)
        self._reorder()

    def _reorder(self) -> None:
        for position, (pull, _) in enumerate(self._in_order(), start=1):
            if pull.queue_position != position:
                pull.queue_position = position
                pull.notify()

    def _in_order(self) -> list[tuple[SharedPull[J], asyncio.Future[None]]]:
        def rank(entry: tuple[SharedPull[J], asyncio.Future[None]]) -> tuple[bool, int, int]:
            pull = entry[0]
            return (pull.passed_over < _PASSED_OVER_MAX, -pull.priority, pull.order)

        return sorted(self._queue, key=rank)
