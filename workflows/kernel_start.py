"""The child workflow that creates and starts one kernel's container, and undoes its own work if that fails."""

import asyncio
from dataclasses import dataclass

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from activities.failures import failure_of
from towline.domain.containers import ContainerExit, EndContainer, StartContainer, StartedContainer
from towline.domain.queues import ActivityName, WorkflowName, container_queue
from workflows import options


@dataclass(kw_only=True)
class KernelStartState:
    """The child's whole state."""

    request: StartContainer


@workflow.defn(name=WorkflowName.KERNEL_START)
class KernelStart:
    """Start a container; on failure or cancel leave nothing behind. Ends only when that is so."""

    @workflow.run
    async def run(self, state: KernelStartState) -> StartedContainer:
        """Returns the started container. Fails with the typed reason of the failed start."""
        try:
            return await self._start(state.request)
        except (ActivityError, asyncio.CancelledError) as error:
            # A bare cancel comes where the start succeeded in the same instant: its answer is lost, its container is not.
            await self._undo(state.request)
            if isinstance(error, asyncio.CancelledError) or is_cancelled_exception(error):
                raise
            failure = failure_of(error)
            raise ApplicationError(failure.message, type=failure.reason, non_retryable=True) from error

    async def _start(self, request: StartContainer) -> StartedContainer:
        started: StartedContainer = await workflow.execute_activity(
            ActivityName.START_CONTAINER,
            request,
            task_queue=container_queue(request.agent_id),
            result_type=StartedContainer,
            summary=f"kernel {request.kernel}",
            **options.START,
        )
        return started

    async def _undo(self, request: StartContainer) -> None:
        # The start may have happened although its answer was lost, so the container is looked for in any case.
        await end_container(request.agent_id, request.spec.session_id, request.kernel, grace_seconds=0)


async def end_container(agent_id: str, session_id: str, kernel: int, *, grace_seconds: float) -> ContainerExit:
    """End a container, however long its agent is away. Returns how it ended."""
    while True:
        try:
            ended: ContainerExit = await workflow.execute_activity(
                ActivityName.END_CONTAINER,
                EndContainer(session_id=session_id, kernel=kernel, grace_seconds=grace_seconds),
                task_queue=container_queue(agent_id),
                result_type=ContainerExit,
                summary=f"kernel {kernel}",
                **options.ending(grace_seconds),
            )
        except ActivityError:
            # Whatever the engine said no to, the container is still ours to remove.
            await workflow.sleep(60)
        else:
            return ended
