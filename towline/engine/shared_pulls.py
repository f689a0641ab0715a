"""One transfer per key for any number of waiters.

A shared pull outlives its first waiter, and ends with its last. A waiter that leaves harms no other; when the last one has
left, the transfer is aborted, and that waiter's cancellation completes only when the abort is acknowledged.
"""

import asyncio
import contextvars
import itertools
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

Slot = Callable[[], AbstractAsyncContextManager[None]]
"""Entered for the time of each transfer: waits for one of the slots, and gives it back."""

T_co = TypeVar("T_co", covariant=True)


class Job(Protocol[T_co]):
    """The work of one pull."""

    async def run(self, slot: Slot, on_change: Callable[[], None]) -> T_co:
        """Do it, each transfer within a `slot`, calling `on_change` whenever there is something new to show.

        Cancelled: stop, and return when stopped.
        """
        ...


J = TypeVar("J", bound=Job[object])
V = TypeVar("V")

_PASSED_OVER_MAX: Final = 8
"""A queued pull that was passed over this often by later ones goes first, whatever its priority: nobody starves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Waiter(Generic[V]):
    """Who waits. `on_change` is given the view of the pull whenever there is something new in it."""

    name: str
    priority: int
    on_change: Callable[[V], None]


class SharedPull(Generic[J, V]):
    """A pull under way or in the queue (`queue_position` 1 is next)."""

    def __init__(self, key: Hashable, job: J, view: Callable[["SharedPull[J, V]"], V]) -> None:
        self.key: Final = key
        self.job: Final = job
        self.waiters: list[Waiter[V]] = []
        self.queue_position: int | None = None
        self.leaving = False
        self.task: asyncio.Task[object]
        self._view = view

    @property
    def priority(self) -> int:
        """The highest of its waiters'."""
        return max((waiter.priority for waiter in self.waiters), default=0)

    @property
    def names(self) -> frozenset[str]:
        """Who waits, each once."""
        return frozenset(waiter.name for waiter in self.waiters)

    def notify(self) -> None:
        """Show every waiter how the pull stands."""
        self.show(*self.waiters)

    def show(self, *waiters: Waiter[V]) -> None:
        """Show these waiters how the pull stands."""
        if waiters:
            view = self._view(self)
            for waiter in waiters:
                waiter.on_change(view)


@dataclass(kw_only=True, eq=False)
class _Turn(Generic[J, V]):
    pull: SharedPull[J, V]
    order: int
    come: asyncio.Future[None]
    passed_over: int = 0


class SharedPulls(Generic[J, V]):
    """The pulls of one agent process: at most `limit` transfers at once, the others in a visible queue.

    `view` makes what waiters are shown; it is called once per change, however many wait.
    """

    def __init__(self, *, limit: int, view: Callable[[SharedPull[J, V]], V]) -> None:
        self._limit = limit
        self._view = view
        self._pulls: dict[Hashable, SharedPull[J, V]] = {}
        self._holders: list[SharedPull[J, V]] = []
        self._queue: list[_Turn[J, V]] = []
        self._orders = itertools.count()

    def running(self) -> list[SharedPull[J, V]]:
        """Every pull that holds a slot, in the order of their turns."""
        return list(self._holders)

    async def join(self, key: Hashable, waiter: Waiter[V], make: Callable[[], J]) -> object:
        """Wait for the pull of `key`, beginning it with `make` if none is under way.

        Returns or raises what the job does. Cancelled: leaves.
        """
        pull = await self._enter(key, make)
        pull.waiters.append(waiter)
        pull.show(waiter)
        self._reorder()
        try:
            return await asyncio.shield(pull.task)
        finally:
            await self._leave(pull, waiter)

    async def _enter(self, key: Hashable, make: Callable[[], J]) -> SharedPull[J, V]:
        while (pull := self._pulls.get(key)) is not None and pull.leaving:
            # Its last waiter has left; what comes now begins anew, once the old transfer is really over.
            await asyncio.wait({pull.task})
        if pull is None:
            pull = SharedPull(key, make(), self._view)
            self._pulls[key] = pull
            # A context of its own: the pull may outlive the activity that began it.
            pull.task = asyncio.create_task(self._run(pull), context=contextvars.Context())
            # Whether it failed is for those who still wait; when all have left, it is nobody's to hear of.
            pull.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return pull

    async def _leave(self, pull: SharedPull[J, V], waiter: Waiter[V]) -> None:
        pull.waiters.remove(waiter)
        if pull.task.done():
            return
        if pull.waiters:
            pull.notify()
            self._reorder()
            return
        pull.leaving = True
        pull.task.cancel()
        await asyncio.wait({pull.task})

    async def _run(self, pull: SharedPull[J, V]) -> object:
        try:
            return await pull.job.run(lambda: self._slot(pull), pull.notify)
        finally:
            # Only its own entry: under the same key another pull may stand by now.
            if self._pulls.get(pull.key) is pull:
                del self._pulls[pull.key]

    @asynccontextmanager
    async def _slot(self, pull: SharedPull[J, V]) -> AsyncIterator[None]:
        turn = _Turn(pull=pull, order=next(self._orders), come=asyncio.get_running_loop().create_future())
        self._queue.append(turn)
        try:
            self._hand_out()
            await turn.come
            yield
        finally:
            # Whoever is cancelled may stand in the queue still, or have been given the slot a moment before.
            if turn in self._queue:
                self._queue.remove(turn)
            else:
                self._holders.remove(pull)
            pull.queue_position = None
            self._hand_out()

    def _hand_out(self) -> None:
        while self._queue and len(self._holders) < self._limit:
            turn = self._in_order()[0]
            self._queue.remove(turn)
            for other in self._queue:
                other.passed_over += other.order < turn.order
            self._holders.append(turn.pull)
            turn.pull.queue_position = None
            if not turn.come.cancelled():  # It has left a moment ago, and gives the slot back at once.
                turn.come.set_result(None)
        self._reorder()

    def _reorder(self) -> None:
        for position, turn in enumerate(self._in_order(), start=1):
            if turn.pull.queue_position != position:
                turn.pull.queue_position = position
                turn.pull.notify()

    def _in_order(self) -> list[_Turn[J, V]]:
        return sorted(
            self._queue,
            key=lambda turn: (turn.passed_over < _PASSED_OVER_MAX, -turn.pull.priority, turn.order),
        )
