"""A session's life, from placement to the last removed container, as one durable workflow."""

import asyncio
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError, ChildWorkflowError

from activities.failures import Failure, failure_of
from towline.domain.agents import Leave, Stay
from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import Reason, Status
from towline.domain.pulling import PullReport, PullStarted, PullVerdict, WaitOutcome
from towline.domain.queues import Signal, WorkflowName
from towline.domain.sessions import EndRequest
from workflows.chronicle import Chronicle
from workflows.closing import Closing, ending_of
from workflows.moving import leave_agents
from workflows.preparing import Preparing
from workflows.state import Ending, SessionState
from workflows.steps import EndedError, MovedError, Steps


@workflow.defn(name=WorkflowName.SESSION)
class Session:
    """Owns the session's status. The records are its projection."""

    @workflow.init
    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._chronicle = Chronicle(state)
        self._steps = Steps(state, self._chronicle)

    @workflow.run
    async def run(self, state: SessionState) -> str:
        """Returns the final status. Never fails: a fault of ours ends the session with the reason `internal`."""
        try:
            await self._live()
        except EndedError:
            pass
        except (ActivityError, ChildWorkflowError) as error:
            self._fail_by(failure_of(error))
        except asyncio.CancelledError:
            self._end(Ending(reason=Reason.CANCELLED_BY_ADMIN, message="cancelled in Temporal"))
        except Exception as error:
            workflow.logger.exception("a fault in the session's story")
            self._fail(Reason.INTERNAL, f"{type(error).__name__}: {error}")
        await Closing(self._state, self._chronicle).close()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._state.status

    async def _live(self) -> None:
        preparing = Preparing(self._state, self._chronicle, self._steps)
        while self._state.status is not Status.RUNNING:
            try:
                await self._steps.until_room(self._place)
                await preparing.prepare()
            except MovedError as moved:
                await leave_agents(self._state, self._chronicle, moved.leave)
        await self._run_until_exit()

    async def _place(self, woken: bool) -> bool:
        if workflow.info().is_continue_as_new_suggested():
            # It may wait for days, and asks again all the while.
            await workflow.wait_condition(workflow.all_handlers_finished)
            workflow.continue_as_new(self._state)
        # What was said of agents that were left. What is said from here on is meant for the agents that are chosen now.
        self._state.leaving.clear()
        placement = await self._chronicle.place(woken=woken)
        self._steps.ask_at = placement.ask_at
        if placement.never:
            self._fail(placement.reason or Reason.CANNOT_EVER_FIT, placement.message)
            raise EndedError
        return bool(placement.agents)

    async def _run_until_exit(self) -> None:
        over = workflow.info().is_continue_as_new_suggested
        while (found := self._decisive_exit()) is None:
            if over():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._state)
            await self._run_on(over)
        self._end(ending_of(found))

    async def _run_on(self, over: Callable[[], bool]) -> None:
        """Until an exit is known, what the session has been told of its agents changes, or it is due to end."""
        due, told = self._state.due(), dict(self._state.leaving)
        done = await self._steps.until(
            lambda: self._decisive_exit() is not None or over() or self._state.leaving != told,
            timeout=None if due is None else due[0] - workflow.now(),
        )
        if not done and due is not None:
            self._end(due[1])
            raise EndedError

    def _decisive_exit(self) -> ContainerExit | None:
        """The exit that ends the session: the first kernel's, or any other's that failed."""
        exits = [kernel.exit for kernel in self._state.kernels if kernel.exit is not None]
        return next((exit_ for exit_ in exits if exit_.kernel == 0 or exit_.exit_code != 0), None)

    def _end(self, ending: Ending) -> None:
        if self._state.ending is None:  # The first reason wins.
            self._state.ending = ending

    def _fail_by(self, failure: Failure) -> None:
        if failure.report is not None:
            self._state.close_pull(failure.report.agent_id, WaitOutcome.FAILED, failure.report)
            self._state.note("pull-failed", f"{failure.report.agent_id}: {failure.reason}: {failure.message}")
        self._fail(failure.reason, failure.message)

    def _fail(self, reason: Reason, message: str) -> None:
        self._end(Ending(reason=reason, message=message, failed=True))

    @workflow.signal(name=Signal.CANCEL, description="End the session; before RUNNING it becomes CANCELLED")
    def cancel(self, request: EndRequest) -> None:
        """The owner, or a superadmin, does not want the session any more."""
        self._end(self._asked(request, forced=False))

    @workflow.signal(name=Signal.FORCE_CANCEL, description="Show the end at once, clean up behind it")
    def force_cancel(self, request: EndRequest) -> None:
        """As cancel, but nothing is waited for. Also speeds up an end that hangs on an agent that is away."""
        self._end(self._asked(request, forced=True))
        if self._state.ending is not None:
            self._state.ending.forced = True

    @workflow.signal(name=Signal.TERMINATE, description="End the session; in RUNNING it becomes TERMINATED")
    def terminate(self, request: EndRequest) -> None:
        """Stop what runs, with grace."""
        self._end(self._asked(request, forced=False))

    def _asked(self, request: EndRequest, *, forced: bool) -> Ending:
        by_admin = request.actor.superadmin and request.actor.user_id != self._state.spec.owner_id
        if self._state.running_since is not None:
            reason = Reason.TERMINATED_BY_ADMIN if by_admin else Reason.TERMINATED_BY_USER
        else:
            reason = Reason.CANCELLED_BY_ADMIN if by_admin else Reason.CANCELLED_BY_USER
        by = request.actor.name
        message = f"asked for by {by}: {request.why}" if request.why else f"asked for by {by}"
        return Ending(reason=reason, message=message, actor=request.actor, why=request.why, forced=forced)

    @workflow.signal(name=Signal.CONTAINER_EXITED, description="A container of the session has exited")
    def container_exited(self, exit_: ContainerExit) -> None:
        """The agent tells how a container ended. Telling it again changes nothing."""
        if not 0 <= exit_.kernel < len(self._state.kernels):
            return
        kernel = self._state.kernels[exit_.kernel]
        if kernel.exit is None and exit_.agent_id in ("", kernel.agent_id):
            kernel.exit = exit_

    @workflow.signal(name=Signal.PULL_STARTED, description="An agent has begun to pull for the session")
    def pull_started(self, signal: PullStarted) -> None:
        """PREPARING → PULLING for the kernels of that agent."""
        if signal.agent_id not in self._state.agents or self._state.status not in (Status.PREPARING, Status.PULLING):
            return
        report = PullReport(
            pull_id=signal.pull_id, agent_id=signal.agent_id, image=signal.image, started_at=signal.started_at
        )
        self._state.open_pull(report)
        self._state.note("pull-started", f"{signal.agent_id}: {signal.image} ({signal.pull_id})")
        for index, kernel in enumerate(self._state.kernels):
            if kernel.agent_id == signal.agent_id and kernel.status is Status.PREPARING:
                self._state.apply(index, Status.PULLING)

    @workflow.signal(name=Signal.PULL_VERDICT, description="What is thought of the pull has changed")
    def pull_verdict(self, signal: PullVerdict) -> None:
        """Shown in the UI, and kept as an event."""
        if signal.agent_id in self._state.agents and self._state.status is Status.PULLING:
            self._state.verdicts[signal.agent_id] = signal
            self._state.note("verdict", f"{signal.agent_id}: {signal.verdict} {signal.reason}".rstrip())

    @workflow.signal(name=Signal.CAPACITY_FREED, description="There is room; a waiting session tries again")
    def capacity_freed(self) -> None:
        """Wakes placement, or the wait for a quota."""
        self._steps.room_made = True

    @workflow.signal(name=Signal.AGENT_LEAVE, description="An agent of the session is lost, or is drained")
    def agent_leave(self, leave: Leave) -> None:
        """Before RUNNING the session is placed anew; then it has until the deadline."""
        self._state.leaving[_order(leave)] = leave
        if self._state.running_since is not None and self._state.ending is None:
            until = "when its command does" if leave.deadline is None else f"at {leave.deadline:%Y-%m-%d %H:%M:%S} UTC"
            self._state.note(leave.reason, f"{leave.message}; unless that changes, the session ends {until}")

    @workflow.signal(name=Signal.AGENT_STAY, description="An agent of the session is back, or is drained no more")
    def agent_stay(self, stay: Stay) -> None:
        """The session goes on where it is."""
        known = self._state.leaving.pop(_order(stay), None)
        if known is not None and self._state.running_since is not None and self._state.ending is None:
            self._state.note("agent-back", f"agent {stay.agent_id}: {stay.reason} is over; the session goes on")

    @workflow.query(name="kernels_on", description="Which kernels have their place on an agent")
    def kernels_on(self, agent_id: str) -> list[int]:
        """For an agent that has to know whether a container is wanted there."""
        return [index for index, kernel in enumerate(self._state.kernels) if kernel.agent_id == agent_id]

    @workflow.query(name="exit_of", description="How a kernel ended, as far as the session knows")
    def exit_of(self, kernel: int) -> ContainerExit | None:
        """For an agent that has to know whether a container that it cannot find has run already."""
        kernels = self._state.kernels
        return kernels[kernel].exit if 0 <= kernel < len(kernels) else None


def _order(told: Leave | Stay) -> str:
    return f"{told.agent_id} {told.reason}"
