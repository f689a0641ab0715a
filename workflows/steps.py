"""Waiting in the session workflow: every wait of its story ends early when the session's end has been asked for."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow

from towline.domain.agents import Leave
from workflows import options
from workflows.chronicle import Chronicle
from workflows.closing import announce
from workflows.state import SessionState

T = TypeVar("T")

_AT_LEAST = timedelta(seconds=0.1)
"""The records' clock and Temporal's may differ a little; a moment that one of them has reached is not asked for in a loop."""


class EndedError(Exception):
    """The session's end has been decided: the story stops here, and the closing takes over."""


class MovedError(Exception):
    """An agent of the session is to be left before the session runs: the story begins anew with placement."""

    def __init__(self, leave: Leave) -> None:
        super().__init__(leave.message)
        self.leave = leave


class Steps:
    """The waits of the story. Meanwhile they write down what signals brought."""

    def __init__(self, state: SessionState, chronicle: Chronicle) -> None:
        self._state = state
        self._chronicle = chronicle
        self.room_made = False
        """Set by who says that there is room now, on the agents or in a quota."""
        self.ask_at: datetime | None = None
        """Set by who has been told that it is of no use to ask before."""

    async def until_room(self, ask: Callable[[bool], Awaitable[bool]]) -> None:
        """Ask until there is room: at once, whenever some has been made (then with True), and now and then behind that. Raises
        as `until`."""
        while True:
            woken, self.room_made = self.room_made, False
            if await ask(woken):
                return
            again = options.CAPACITY_RECHECK if self.ask_at is None else self.ask_at - workflow.now()
            await self.until(lambda: self.room_made, timeout=max(again, _AT_LEAST))

    async def until(self, done: Callable[[], bool], *, timeout: timedelta | None = None) -> bool:
        """Wait for `done`. False: the time-out came first. Raises `EndedError` when the end was asked for, and `MovedError`."""
        deadline = None if timeout is None else workflow.now() + timeout
        while True:
            if self._state.ending is not None:
                raise EndedError
            if (leave := self._state.must_move) is not None:
                raise MovedError(leave)
            # What is unwritten at the end of a wait goes with what the story, or the closing, writes next.
            if done():
                return True
            await self._chronicle.write()
            left = None if deadline is None else deadline - workflow.now()
            if left is not None and left <= timedelta():
                return done()
            try:
                await workflow.wait_condition(lambda: done() or self._has_news(), timeout=left)
            except TimeoutError:
                return done()

    async def all_of(self, tasks: Sequence[asyncio.Task[T]], *, on: Sequence[str] = ()) -> list[T]:
        """Wait for all, and return their results in order. When one fails, or the end is asked for, the others are cancelled
        and waited for, because a pull that still runs, or a start that still may happen, would outlive what was decided.
        Those whose agent (`on`, in the tasks' order) is lost are not waited for: they end when it is back.

        Raises the first failure, `EndedError`, or `MovedError`.
        """

        def over() -> bool:
            return _failure(tasks) is not None or all(task.done() for task in tasks)

        try:
            await self.until(over)
        except EndedError:
            await announce(self._state, self._chronicle)
            raise
        finally:
            failure = _failure(tasks)
            for task in tasks:
                task.cancel()
            await self._settled(tasks, on)
        if self._state.ending is not None:
            raise EndedError
        if failure is not None:
            raise failure
        return [task.result() for task in tasks]

    async def _settled(self, tasks: Sequence[asyncio.Task[T]], on: Sequence[str]) -> None:
        whose = list(zip(tasks, on, strict=True)) if on else [(task, "") for task in tasks]
        await workflow.wait_condition(
            lambda: all(task.done() or self._state.is_lost(agent_id) for task, agent_id in whose)
        )
        for task in tasks:
            # What is not waited for may fail later, and nobody will ask it why.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _is_interrupted(self) -> bool:
        return self._state.ending is not None or self._state.must_move is not None

    def _has_news(self) -> bool:
        return self._is_interrupted() or bool(self._state.unwritten)


def _failure(tasks: Sequence[asyncio.Task[T]]) -> BaseException | None:
    failures = (task.exception() for task in tasks if task.done() and not task.cancelled())
    return next((failure for failure in failures if failure is not None), None)
