"""What has to be so before a session is placed, in the records, fake and real."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.contract.store.conftest import Recorder, added
from tests.contract.store.specs import S, end, online, running, spec
from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import Reason
from towline.domain.records import Freed, Place


class TestPreconditions:
    async def test_before_its_time_it_is_not_placed_and_keeps_no_room(self, recorder: Recorder) -> None:
        await recorder.record_agent(online())
        later, past = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1)
        early, ready = await added(recorder, spec(gib=8, starts_at=later), spec(gib=8, starts_at=past))
        answer = await recorder.place(Place(session_id=early))
        assert (answer.agents, answer.never, answer.ask_at) == ((), False, later)
        view = await recorder.view(early)
        assert (view.status, view.reason, view.message) == (S.PENDING, Reason.STARTS_AT, answer.message)
        assert f"{later:%H:%M:%S}" in answer.message
        assert (await recorder.place(Place(session_id=ready))).agents == ("a1",)

    async def test_it_is_woken_and_placed_when_all_that_it_depends_on_is_done(self, recorder: Recorder) -> None:
        await recorder.record_agent(online())
        first, second = await added(recorder, spec(), spec())
        [last] = await added(recorder, spec(depends_on=(first, second)))
        answer = await recorder.place(Place(session_id=last))
        assert (answer.agents, answer.reason) == ((), Reason.DEPENDENCY)
        assert answer.message == f"waits for 2 of 2: session {first} is PENDING, session {second} is PENDING"
        assert (await self._exits(recorder, first, code=0)).woken == (last,)
        answer = await recorder.place(Place(session_id=last))
        assert answer.message == f"waits for 1 of 2: session {second} is PENDING"
        assert (await self._exits(recorder, second, code=0)).woken == (last,)
        assert (await recorder.place(Place(session_id=last))).agents == ("a1",)
        assert (await recorder.finish(end(last, S.PREPARING, S.CANCELLED))).woken == ()

    async def test_another_exit_code_than_0_is_the_end_of_who_waits_also_before_its_time(
        self, recorder: Recorder
    ) -> None:
        await recorder.record_agent(online())
        [first] = await added(recorder, spec())
        later = datetime.now(UTC) + timedelta(hours=1)
        [last] = await added(recorder, spec(depends_on=(first,), starts_at=later))
        assert (await recorder.place(Place(session_id=last))).reason is Reason.STARTS_AT
        await self._exits(recorder, first, code=3)
        answer = await recorder.place(Place(session_id=last))
        assert (answer.never, answer.reason) == (True, Reason.DEPENDENCY_FAILED)
        assert f"session {first} ended with exit code 3" in answer.message

    async def test_one_that_was_cancelled_or_is_not_there_is_not_done(self, recorder: Recorder) -> None:
        await recorder.record_agent(online())
        [first] = await added(recorder, spec())
        [last, lost] = await added(recorder, spec(depends_on=(first,)), spec(depends_on=("ses-none",)))
        await recorder.place(Place(session_id=first))
        assert (await recorder.place(Place(session_id=last))).reason is Reason.DEPENDENCY
        cancelled = end(first, S.PREPARING, S.CANCELLED, reason=Reason.CANCELLED_BY_USER)
        assert (await recorder.finish(cancelled)).woken == (last,)
        for waiting, why in ((last, "ended as CANCELLED (cancelled-by-user)"), (lost, "does not exist")):
            answer = await recorder.place(Place(session_id=waiting))
            assert (answer.never, answer.reason) == (True, Reason.DEPENDENCY_FAILED)
            assert why in answer.message

    async def _exits(self, recorder: Recorder, session_id: str, *, code: int) -> Freed:
        assert (await recorder.place(Place(session_id=session_id))).agents
        await recorder.record(running(session_id))
        step = end(session_id, S.RUNNING, S.TERMINATED, reason=Reason.EXITED)
        return await recorder.finish(replace(step, exits=(ContainerExit(kernel=0, exit_code=code),)))
