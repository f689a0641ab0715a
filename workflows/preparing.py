"""From placed to running: bring the image to every agent of the session, then start every kernel."""

import asyncio
from collections.abc import Sequence

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError

from activities.failures import failure_of
from towline.domain.containers import StartContainer, StartedContainer
from towline.domain.lifecycle import Reason, Status
from towline.domain.pulling import CheckAndPull, CheckImage, ImageCheck, PulledImage, WaitOutcome
from towline.domain.queues import ActivityName, WorkflowName, container_queue, kernel_start_workflow_id, pull_queue
from towline.domain.records import KernelFacts
from workflows import options
from workflows.chronicle import Chronicle
from workflows.kernel_start import KernelStartState
from workflows.state import SessionState
from workflows.steps import Steps

_ROUNDS = 2
"""An image that vanishes between pull and create is brought once more."""


class Preparing:
    """The steps PREPARING → PULLING → PREPARED → CREATING → RUNNING."""

    def __init__(self, state: SessionState, chronicle: Chronicle, steps: Steps) -> None:
        self._state = state
        self._chronicle = chronicle
        self._steps = steps

    async def prepare(self) -> None:
        """Returns when every kernel runs. Raises the failed activity's or child's error, or `EndedError`."""
        for round_ in range(1, _ROUNDS + 1):
            await self._bring_images()
            try:
                await self._start_kernels()
            except ChildWorkflowError as error:
                if failure_of(error).reason is not Reason.IMAGE_VANISHED or round_ == _ROUNDS:
                    raise
                self._state.note("image-vanished", "the image vanished before its container was made; brought again")
                self._state.apply_to_all(Status.PREPARING, Reason.IMAGE_VANISHED, failure_of(error).message)
            else:
                return

    async def _bring_images(self) -> None:
        agents = self._state.agents
        checks = dict(zip(agents, await self._steps.all_of([self._check(agent) for agent in agents]), strict=True))
        digest = _digest_for_all(list(checks.values()))
        lacking = [agent for agent, check in checks.items() if not (check.present and check.digest == digest)]
        pulled = await self._steps.all_of([self._pull(agent, digest) for agent in lacking]) if lacking else []
        brought = dict(zip(lacking, pulled, strict=True))
        for index, kernel in enumerate(self._state.kernels):
            check, image = checks[kernel.agent_id], brought.get(kernel.agent_id)
            kernel.image_ref = image.image_ref if image else check.image_id or check.digest or self._state.spec.image
            known = image.digest if image else check.digest
            self._state.unwritten.facts.append(KernelFacts(kernel=index, digest=known, stale=check.stale or None))
            self._state.apply(index, Status.PREPARED)
        for agent, image in brought.items():
            self._state.close_pull(agent, WaitOutcome.SUCCEEDED, image.report)
            self._state.note("pull-finished", _sentence_of(agent, image))
        self._state.verdicts.clear()

    def _check(self, agent_id: str) -> asyncio.Task[ImageCheck]:
        spec = self._state.spec
        return workflow.start_activity(
            ActivityName.CHECK_IMAGE,
            CheckImage(
                session_id=spec.session_id,
                image=spec.image,
                policy=spec.pull_policy,
                platform=spec.platform,
                allow_stale=spec.allow_stale,
            ),
            task_queue=container_queue(agent_id),
            result_type=ImageCheck,
            summary=spec.image[:200],
            **options.CHECK,
        )

    def _pull(self, agent_id: str, digest: str | None) -> asyncio.Task[PulledImage]:
        spec = self._state.spec
        return workflow.start_activity(
            ActivityName.CHECK_AND_PULL,
            CheckAndPull(
                waiter=spec.session_id,
                image=spec.image,
                digest=digest,
                platform=spec.platform,
                policy=spec.pull_policy,
                priority=spec.priority,
                deadline_seconds=spec.pull_deadline_seconds,
            ),
            task_queue=pull_queue(agent_id),
            result_type=PulledImage,
            summary=spec.image[:200],
            **options.PULL,
        )

    async def _start_kernels(self) -> None:
        await self._steps.until_room(self._chronicle.admit)
        lacking = [index for index, kernel in enumerate(self._state.kernels) if not kernel.started]
        on = [self._state.kernels[index].agent_id for index in lacking]
        await self._steps.all_of([asyncio.create_task(self._start(index)) for index in lacking], on=on)
        self._state.apply_to_all(Status.RUNNING)
        self._state.running_since = workflow.now()
        await self._chronicle.write()

    async def _start(self, index: int) -> None:
        spec = self._state.spec
        kernel = self._state.kernels[index]
        placement = self._state.moves + 1
        request = StartContainer(spec=spec, kernel=index, agent_id=kernel.agent_id, image_ref=kernel.image_ref)
        started: StartedContainer = await workflow.execute_child_workflow(
            WorkflowName.KERNEL_START,
            KernelStartState(request=request),
            id=kernel_start_workflow_id(spec.session_id, index, placement),
            result_type=StartedContainer,
            static_summary=f"kernel {index} on {kernel.agent_id}",
        )
        if placement != self._state.moves + 1:
            return  # Its agent was lost and is back: the agent removes what the session does not want there any more.
        # Also when the end was asked for meanwhile: what has started has to be ended.
        kernel.started = True
        self._state.unwritten.facts.append(
            KernelFacts(
                kernel=index,
                container_id=started.container_id,
                started_at=started.started_at,
                ports=started.ports,
            )
        )


def _digest_for_all(checks: Sequence[ImageCheck]) -> str | None:
    """One content for all kernels: what the first agent has that has it, else what the registry resolved."""
    candidates = [check.digest for check in checks if check.present] + [check.digest for check in checks]
    return next((digest for digest in candidates if digest is not None), None)


def _sentence_of(agent_id: str, image: PulledImage) -> str:
    report = image.report
    if report is None or report.ended_at is None:
        return f"{agent_id}: the image was there already"
    seconds = (report.ended_at - report.started_at).total_seconds()
    attempts = "1 attempt" if report.attempts == 1 else f"{report.attempts} attempts"
    return f"{agent_id}: pulled {report.bytes_pulled} bytes in {seconds:.1f} s, {attempts}"
