"""The end of a session: seen at once or after the clean-up, as was asked; over only when its containers are gone."""

import asyncio
from collections.abc import Sequence
from typing import Final

from temporalio import workflow

from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import FINAL, Reason, Status
from towline.domain.pulling import WaitOutcome
from workflows.chronicle import Chronicle
from workflows.kernel_start import end_container
from workflows.state import Ending, KernelState, SessionState


async def announce(state: SessionState, chronicle: Chronicle) -> None:
    """Let people see that the session ends: its final status if the end is forced, TERMINATING otherwise."""
    if _ending(state).forced:
        await _finish(state, chronicle)
    elif any(kernel.status not in FINAL for kernel in state.kernels):
        state.apply_to_all(Status.TERMINATING, _ending(state).reason, _ending(state).message)
        await chronicle.write()


class Closing:
    """Ends what runs, then writes the end."""

    def __init__(self, state: SessionState, chronicle: Chronicle) -> None:
        self._state = state
        self._chronicle = chronicle

    async def close(self) -> None:
        """Returns when nothing of the session is left on any agent and its end is recorded."""
        state = self._state
        running = [index for index, kernel in enumerate(state.kernels) if kernel.started and kernel.exit is None]
        if running:
            await announce(state, self._chronicle)
            ends = [asyncio.create_task(self._end(index)) for index in running]
            clean_up = asyncio.gather(*ends)
            await workflow.wait_condition(
                lambda: clean_up.done() or _ending(state).forced or self._only_lost_ones_are_left(running, ends)
            )
            shown_before = not clean_up.done()
            if shown_before:
                await _finish(state, self._chronicle)
            await clean_up
            if shown_before:
                await self._chronicle.finish((), _ending(state))
        await _finish(state, self._chronicle)

    def _only_lost_ones_are_left(self, running: Sequence[int], ends: Sequence[asyncio.Task[None]]) -> bool:
        """Nobody knows when a lost agent will be back: the end is shown before."""
        agents = [self._state.kernels[index].agent_id for index in running]
        return all(end.done() or self._state.is_lost(agent) for agent, end in zip(agents, ends, strict=True))

    async def _end(self, index: int) -> None:
        kernel = self._state.kernels[index]
        spec = self._state.spec
        grace = 0.0 if _ending(self._state).forced else spec.stop_grace_seconds
        found = await end_container(kernel.agent_id, spec.session_id, index, grace_seconds=grace)
        if kernel.exit is None:
            kernel.exit = found
            kernel.stopped = True


async def _finish(state: SessionState, chronicle: Chronicle) -> None:
    if state.finished:
        return
    for agent_id in list(state.open_pulls):
        state.close_pull(agent_id, WaitOutcome.LEFT)
    await chronicle.write()
    for index, kernel in enumerate(state.kernels):
        to, reason, message = _end_of(state, kernel)
        state.apply(index, to, reason, message)
    state.finished = True
    await chronicle.finish(tuple(state.take_unwritten().transitions), _ending(state))


def _end_of(state: SessionState, kernel: KernelState) -> tuple[Status, Reason, str]:
    """How one kernel ends, given how the session does."""
    ending = _ending(state)
    if state.running_since is None:
        return (Status.ERROR if ending.failed else Status.CANCELLED), ending.reason, ending.message
    own = None if kernel.exit is None or kernel.stopped else ending_of(kernel.exit)
    if own is not None and (ending.reason in OWN_ENDS):
        return (Status.ERROR if own.failed else Status.TERMINATED), own.reason, own.message
    if ending.failed:
        return Status.ERROR, ending.reason, ending.message
    if ending.reason in OWN_ENDS:
        return Status.TERMINATED, Reason.PEER_ENDED, "another kernel of the session ended it"
    return Status.TERMINATED, ending.reason, ending.message


OWN_ENDS: Final = frozenset({Reason.EXITED, Reason.OOM_KILLED, Reason.CONTAINER_LOST})
"""Reasons that a container's own exit makes."""


def ending_of(exit_: ContainerExit) -> Ending:
    """The end that an exit makes. A command's own exit code is a result, not an error."""
    if exit_.oom_killed:
        return Ending(reason=Reason.OOM_KILLED, message="the kernel's memory limit was reached")
    if exit_.exit_code is None:
        message = exit_.message or "the container is gone and nobody knows how it ended"
        return Ending(reason=Reason.CONTAINER_LOST, message=message, failed=True)
    return Ending(reason=Reason.EXITED, message=f"exit code {exit_.exit_code}")


def _ending(state: SessionState) -> Ending:
    return state.ending or Ending(reason=Reason.INTERNAL, message="ended without a reason", failed=True)
