"""Leaving agents before the session runs: what was begun is undone where that is possible, and the kernels are placed anew."""

import asyncio

from temporalio import workflow

from towline.domain.agents import Leave
from towline.domain.lifecycle import Reason, Status
from towline.domain.pulling import WaitOutcome
from workflows import options
from workflows.chronicle import Chronicle
from workflows.kernel_start import end_container
from workflows.state import Ending, SessionState
from workflows.steps import EndedError


async def leave_agents(state: SessionState, chronicle: Chronicle, leave: Leave) -> None:
    """Back to PENDING, all kernels together. On an agent that is lost nothing can be undone now: when it is back it asks
    which containers are wanted there, and removes the others. Raises `EndedError`, also where it has happened too often."""
    if leave.reason is Reason.AGENT_LOST and state.moves + 1 >= options.PLACEMENTS_MAX:
        message = f"placed {state.moves + 1} times without coming to run; at last {leave.message}"
        state.ending = state.ending or Ending(reason=Reason.AGENT_LOST, message=message, failed=True)
    else:
        await _end_what_has_started(state)
    if state.ending is not None:
        raise EndedError
    for agent_id in list(state.open_pulls):
        state.close_pull(agent_id, WaitOutcome.LEFT)
    state.apply_to_all(Status.PENDING, leave.reason, leave.message)
    for kernel in state.kernels:
        kernel.agent_id, kernel.image_ref, kernel.started, kernel.exit = "", "", False, None
    state.moves += 1
    state.verdicts.clear()
    await chronicle.write()


async def _end_what_has_started(state: SessionState) -> None:
    """On the agents that answer. The same container's name may be used there again."""
    tasks = {
        asyncio.create_task(end_container(kernel.agent_id, state.spec.session_id, index, grace_seconds=0)): kernel
        for index, kernel in enumerate(state.kernels)
        if kernel.started and kernel.exit is None and not state.is_lost(kernel.agent_id)
    }
    await workflow.wait_condition(
        lambda: (
            state.ending is not None
            or all(task.done() or state.is_lost(kernel.agent_id) for task, kernel in tasks.items())
        )
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
