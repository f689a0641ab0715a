"""Writing down what the session workflow has decided: records, search attributes, current details."""

from collections.abc import Iterable
from typing import Any, Final

from temporalio import workflow

from towline.domain.lifecycle import Status, Transition
from towline.domain.queues import ActivityName, Signal, session_workflow_id
from towline.domain.records import Admission, Admit, Finish, Freed, Place, Placement, Record
from workflows import options
from workflows.display import Display, details_of
from workflows.state import Ending, SessionState

_FREED: Final[Any] = Freed | None
"""What `record` answers. In a history that is older than this answer it is nothing."""


class Chronicle:
    """The only code of the session workflow that writes. The state has changed before; this makes it seen."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._display = Display()

    async def place(self, *, woken: bool) -> Placement:
        """Ask for agents. A success has been recorded with the reservation, in its transaction."""
        spec = self._state.spec
        placement: Placement = await workflow.execute_local_activity(
            ActivityName.PLACE, Place(session_id=spec.session_id, woken=woken), result_type=Placement, **options.RECORDS
        )
        for kernel, agent_id in zip(self._state.kernels, placement.agents, strict=False):
            kernel.agent_id = agent_id
            kernel.status = Status.PREPARING
        self._state.waits_for = "" if placement.agents else placement.message
        self._show()
        await wake(placement.woken)
        return placement

    async def admit(self, woken: bool) -> bool:
        """Write down what is unwritten, and ask to go on to CREATING. Yes has been recorded in the same transaction."""
        admission: Admission = await workflow.execute_local_activity(
            ActivityName.ADMIT, Admit(record=self._take_record(), woken=woken), result_type=Admission, **options.RECORDS
        )
        if admission.admitted:
            for kernel in self._state.kernels:
                if kernel.status is Status.PREPARED:
                    kernel.status = Status.CREATING
        self._state.waits_for = admission.message
        self._show()
        await wake(admission.woken)
        return admission.admitted

    async def write(self) -> None:
        """Write down what is unwritten. Wakes who waited for what was given back with it."""
        if not self._state.unwritten:
            return
        record = self._take_record()
        self._show()
        freed: Freed | None = await workflow.execute_local_activity(
            ActivityName.RECORD, record, result_type=_FREED, **options.RECORDS
        )
        if freed is not None:
            await wake(freed.woken)

    def _take_record(self) -> Record:
        unwritten = self._state.take_unwritten()
        return Record(
            session_id=self._state.spec.session_id,
            transitions=tuple(unwritten.transitions),
            facts=tuple(unwritten.facts),
            notes=tuple(unwritten.notes),
            pulls=tuple(unwritten.pulls),
        )

    async def finish(self, steps: tuple[Transition, ...], ending: Ending) -> None:
        """Write the end: the session holds nothing from here on. Wakes who waited for what it held."""
        finish = Finish(
            session_id=self._state.spec.session_id,
            transitions=steps,
            reason=ending.reason,
            message=ending.message,
            exits=tuple(kernel.exit for kernel in self._state.kernels if kernel.exit is not None),
            actor=ending.actor,
            why=ending.why,
        )
        self._show()
        finished: Freed = await workflow.execute_local_activity(
            ActivityName.FINISH, finish, result_type=Freed, **options.RECORDS
        )
        await wake(finished.woken)

    def _show(self) -> None:
        changes = self._display.changes(self._state)
        if changes:
            workflow.upsert_search_attributes(changes)
        workflow.set_current_details(details_of(self._state))


async def wake(session_ids: Iterable[str]) -> None:
    """Signal the sessions that wait for capacity."""
    await tell(session_ids, Signal.CAPACITY_FREED)


async def tell(session_ids: Iterable[str], signal: Signal, *what: object) -> None:
    """Signal sessions, one after the other. One that has ended meanwhile is passed over."""
    for session_id in session_ids:
        handle = workflow.get_external_workflow_handle(session_workflow_id(session_id))
        try:
            await handle.signal(signal, args=what)
        except Exception as error:
            # Its workflow has ended, or is not started yet and will place itself when it is.
            workflow.logger.info("could not tell %s: %s", session_id, error)
