"""The records, fake and real: placed once, ended once, freed once, and nothing of it harmed by being said again."""

from datetime import UTC, datetime

import pytest

from tests.contract.store.conftest import Recorder, added
from tests.contract.store.specs import GIB, S, end, online, running, spec, steps
from towline.domain.agents import AgentStatus, RecordAgent
from towline.domain.containers import ContainerExit, LogTail
from towline.domain.lifecycle import Reason, Transition
from towline.domain.placement import AgentRoom
from towline.domain.records import WAITS, KernelFacts, Note, Place, Record
from towline.domain.sessions import Actor, ClusterMode, Kind, SessionSpec

AT = datetime(2026, 1, 1, tzinfo=UTC)
PLACED = [S.SCHEDULED, S.PREPARING]


async def placed(recorder: Recorder, one: SessionSpec) -> str:
    await recorder.record_agent(online())
    [session_id] = await added(recorder, one)
    assert (await recorder.place(Place(session_id=session_id))).agents
    return session_id


async def free(recorder: Recorder, agent_id: str = "a1") -> tuple[float, int]:
    """Cores and GiB that are free."""
    room = next(room for room in await recorder.rooms() if room.agent_id == agent_id)
    return room.cpu_free, room.memory_bytes_free // GIB


async def path(recorder: Recorder, session_id: str, kernel: int = 0) -> list[S]:
    events = await recorder.events(session_id)
    return [event.to_status for event in events if event.kernel == kernel and event.to_status is not None]


class TestPlacing:
    async def test_reserves_for_every_kernel_and_tells_why(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(cpu=1, gib=2, kernels=2))
        view = await recorder.view(session_id)
        assert (view.status, [kernel.agent_id for kernel in view.kernels]) == (S.PREPARING, ["a1", "a1"])
        assert await free(recorder) == (2.0, 4)
        assert await path(recorder, session_id, 1) == PLACED
        [why, *_] = [event.message for event in await recorder.events(session_id)]
        assert why == "a1: the most room of 1 fitting agent"

    async def test_asked_again_answers_the_same_and_reserves_nothing_more(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(gib=2))
        first = await recorder.place(Place(session_id=session_id))
        await recorder.record(running(session_id))
        assert await recorder.place(Place(session_id=session_id)) == first
        assert (first.agents, await free(recorder)) == (("a1",), (3.0, 6))
        assert len(await path(recorder, session_id)) == 5

    async def test_over_several_agents_or_not_at_all(self, recorder: Recorder) -> None:
        for agent_id in ("a1", "a2"):
            await recorder.record_agent(online(agent_id))
        multi = ClusterMode.MULTI_AGENT
        first, second = await added(
            recorder, spec(gib=6, kernels=2, cluster_mode=multi), spec(gib=2, kernels=3, cluster_mode=multi)
        )
        assert (await recorder.place(Place(session_id=first))).agents == ("a1", "a2")
        assert (await recorder.place(Place(session_id=second))).reason is Reason.NO_CAPACITY
        assert [await free(recorder, agent_id) for agent_id in ("a1", "a2")] == [(3.0, 2), (3.0, 2)]

    async def test_without_an_agent_it_waits_and_shows_why(self, recorder: Recorder) -> None:
        [session_id] = await added(recorder, spec())
        answer = await recorder.place(Place(session_id=session_id))
        view = await recorder.view(session_id)
        assert (answer.agents, answer.never, answer.reason) == ((), False, Reason.NO_CAPACITY)
        assert (view.status, view.reason, view.message) == (S.PENDING, Reason.NO_CAPACITY, answer.message)
        assert answer.message == "no agent has registered yet"
        [event] = await recorder.events(session_id)
        assert (event.kind, event.reason, event.message) == (WAITS, Reason.NO_CAPACITY, answer.message)
        await recorder.place(Place(session_id=session_id))
        assert await recorder.events(session_id) == [event]

    async def test_why_it_waited_is_not_shown_any_more_once_it_is_placed(self, recorder: Recorder) -> None:
        [session_id] = await added(recorder, spec())
        await recorder.place(Place(session_id=session_id))
        await recorder.record_agent(online())
        await recorder.place(Place(session_id=session_id))
        view = await recorder.view(session_id)
        assert (view.status, view.reason, view.message) == (S.PREPARING, None, "")

    async def test_what_can_never_fit_is_refused_for_good(self, recorder: Recorder) -> None:
        await recorder.record_agent(online())
        [session_id] = await added(recorder, spec(gib=9))
        answer = await recorder.place(Place(session_id=session_id))
        assert (answer.never, answer.reason) == (True, Reason.CANNOT_EVER_FIT)
        assert "the largest agent, a1," in answer.message

    async def test_a_lost_agent_gets_nothing_new_and_what_runs_there_stays(self, recorder: Recorder) -> None:
        await placed(recorder, spec())
        await recorder.record_agent(RecordAgent(facts=online().facts, status=AgentStatus.LOST))
        [second] = await added(recorder, spec())
        assert (await recorder.place(Place(session_id=second))).reason is Reason.NO_CAPACITY
        [room] = await recorder.rooms()
        assert (room.online, room.cpu_free) == (False, 3.0)

    async def test_after_the_end_or_without_a_record_there_is_no_placement(self, recorder: Recorder) -> None:
        [session_id] = await added(recorder, spec())
        await recorder.finish(end(session_id, S.PENDING, S.CANCELLED, reason=Reason.CANCELLED_BY_USER))
        await recorder.record_agent(online())
        for asked in (session_id, "ses-unknown"):
            answer = await recorder.place(Place(session_id=asked))
            assert (answer.agents, answer.never) == ((), True)
        assert await free(recorder) == (4.0, 8)

    async def test_placed_anew_it_holds_only_the_new_place(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(gib=2))
        started = KernelFacts(kernel=0, container_id="c0", started_at=AT, ports={"80/tcp": (8080,)})
        await recorder.record(Record(session_id=session_id, facts=(started,)))
        await recorder.record(Record(session_id=session_id, transitions=steps(S.PREPARING, S.PENDING)))
        [kernel] = (await recorder.view(session_id)).kernels
        assert (kernel.agent_id, kernel.container_id, kernel.started_at, kernel.ports) == (None, None, None, {})
        assert await free(recorder) == (4.0, 8)
        await recorder.record_agent(online("a2", gib=64))
        assert (await recorder.place(Place(session_id=session_id))).agents == ("a2",)
        assert [await free(recorder, "a1"), await free(recorder, "a2")] == [(4.0, 8), (3.0, 62)]
        assert await path(recorder, session_id) == [*PLACED, S.PENDING, *PLACED]


class TestTurns:
    async def test_room_goes_to_whom_it_fits_by_priority_then_age(self, recorder: Recorder) -> None:
        first = await placed(recorder, spec(gib=8))
        old, new, urgent = await added(recorder, spec(gib=8), spec(gib=8), spec(gib=8, priority=50))
        for waiting in (new, old, urgent):
            await recorder.place(Place(session_id=waiting))
        finished = await recorder.finish(end(first, S.PREPARING, S.CANCELLED))
        assert finished.woken == (urgent,)
        for overtaking in (new, old):
            answer = await recorder.place(Place(session_id=overtaking))
            assert (answer.agents, answer.reason) == ((), Reason.NO_CAPACITY)
        assert (await recorder.place(Place(session_id=urgent))).agents == ("a1",)
        finished = await recorder.finish(end(urgent, S.PREPARING, S.CANCELLED))
        assert finished.woken == (old,)

    async def test_interactive_ones_come_first_then_priority_then_age(self, recorder: Recorder) -> None:
        first = await placed(recorder, spec(gib=8))
        kinds = (Kind.BATCH, Kind.INTERACTIVE, Kind.INTERACTIVE, Kind.INTERACTIVE)
        waiting = await added(
            recorder, *(spec(gib=8, kind=kind, priority=p) for kind, p in zip(kinds, (99, 0, 7, 7), strict=True))
        )
        for one in waiting:
            await recorder.place(Place(session_id=one))
        for one in (waiting[2], waiting[3], waiting[1], waiting[0]):
            assert (await recorder.finish(end(first, S.PREPARING, S.CANCELLED))).woken == (one,)
            assert (await recorder.place(Place(session_id=one))).agents == ("a1",)
            first = one

    async def test_all_that_fit_are_woken_and_a_large_one_keeps_no_small_one_waiting(self, recorder: Recorder) -> None:
        first, second = await placed(recorder, spec(gib=2)), await placed(recorder, spec(gib=6))
        large, *small = await added(recorder, spec(gib=7), spec(gib=3), spec(gib=3), spec(gib=3))
        for waiting in (large, *small):
            await recorder.place(Place(session_id=waiting))
        assert (await recorder.finish(end(second, S.PREPARING, S.CANCELLED))).woken == (small[0], small[1])
        assert (await recorder.finish(end(first, S.PREPARING, S.CANCELLED))).woken == (large,)

    async def test_who_is_woken_in_vain_wakes_those_whom_the_rest_fits(self, recorder: Recorder) -> None:
        first = await placed(recorder, spec(gib=8))
        large, small = await added(recorder, spec(gib=8), spec(gib=2))
        for waiting in (large, small):
            await recorder.place(Place(session_id=waiting))
        assert (await recorder.finish(end(first, S.PREPARING, S.CANCELLED))).woken == (large,)
        await placed(recorder, spec(gib=6, priority=50))
        answer = await recorder.place(Place(session_id=large, woken=True))
        assert (answer.agents, answer.woken) == ((), (small,))
        assert (await recorder.place(Place(session_id=small, woken=True))).agents == ("a1",)

    async def test_an_agent_that_comes_online_wakes_who_fits_there(self, recorder: Recorder) -> None:
        await recorder.record_agent(RecordAgent(facts=online(gib=16).facts, status=AgentStatus.LOST))
        fitting, pinned, large, arm = await added(
            recorder, spec(), spec(agent="a1"), spec(gib=16), spec(platform="linux/arm64")
        )
        for waiting in (fitting, pinned, large, arm):
            await recorder.place(Place(session_id=waiting))
        assert (await recorder.record_agent(online("a2", platform="linux/amd64"))).woken == (fitting,)

    async def test_who_asks_for_a_group_and_labels_is_woken_by_an_agent_that_has_them(self, recorder: Recorder) -> None:
        await recorder.record_agent(RecordAgent(facts=online(gib=16).facts, status=AgentStatus.LOST))
        labelled = online("a2", resource_group="gpu", labels={"zone": "x", "disk": "ssd"})
        await recorder.record_agent(RecordAgent(facts=labelled.facts, status=AgentStatus.LOST))
        [asking] = await added(recorder, spec(resource_group="gpu", agent_labels={"zone": "x"}))
        assert (await recorder.place(Place(session_id=asking))).reason is Reason.NO_CAPACITY
        assert (await recorder.record_agent(online(gib=16))).woken == ()
        assert (await recorder.record_agent(labelled)).woken == (asking,)
        assert (await recorder.place(Place(session_id=asking))).agents == ("a2",)

    async def test_who_leaves_its_agents_wakes_those_whom_its_other_places_fit(self, recorder: Recorder) -> None:
        await recorder.record_agent(online("a2"))
        leaving = await placed(recorder, spec(gib=8, kernels=2, cluster_mode=ClusterMode.MULTI_AGENT))
        [waiting] = await added(recorder, spec(gib=8))
        assert (await recorder.place(Place(session_id=waiting))).reason is Reason.NO_CAPACITY
        await recorder.record_agent(RecordAgent(facts=online("a2").facts, status=AgentStatus.LOST))
        back = tuple(step for kernel in (0, 1) for step in steps(S.PREPARING, S.PENDING, kernel=kernel))
        assert (await recorder.record(Record(session_id=leaving, transitions=back))).woken == (waiting,)
        assert (await recorder.place(Place(session_id=waiting))).agents == ("a1",)

    async def test_a_lost_agent_wakes_nobody(self, recorder: Recorder) -> None:
        [waiting] = await added(recorder, spec())
        await recorder.place(Place(session_id=waiting))
        assert (await recorder.record_agent(RecordAgent(facts=online().facts, status=AgentStatus.LOST))).woken == ()

    async def test_who_was_never_told_to_wait_is_not_woken(self, recorder: Recorder) -> None:
        await added(recorder, spec())
        assert (await recorder.record_agent(online())).woken == ()


class TestRecording:
    async def test_steps_facts_and_notes_in_order_with_numbers_without_gaps(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec())
        facts = KernelFacts(kernel=0, digest="sha256:d", stale=True)
        note = Note(key="verdict-1", kind="verdict", message="a1: stalled", kernel=0)
        await recorder.record(
            Record(session_id=session_id, transitions=steps(S.PREPARING, S.PULLING), facts=(facts,), notes=(note,))
        )
        later = KernelFacts(kernel=0, container_id="c", started_at=AT, ports={"80/tcp": (32768, 32769)})
        await recorder.record(Record(session_id=session_id, facts=(later,)))
        view, events = await recorder.view(session_id), await recorder.events(session_id)
        [kernel] = view.kernels
        assert (kernel.digest, kernel.stale, kernel.container_id, kernel.started_at) == ("sha256:d", True, "c", AT)
        assert kernel.ports == {"80/tcp": [32768, 32769]}
        assert [event.seq for event in events] == [1, 2, 3, 4]
        assert [event.kind for event in events] == ["transition"] * 3 + ["verdict"]
        assert (events[3].message, events[3].session_status) == ("a1: stalled", S.PULLING)
        assert view.last_event == 4

    async def test_said_again_it_changes_nothing(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(kernels=2))
        notes = (Note(key="pulled-1", kind="pulled", message="a1: there already"),)
        record = Record(session_id=session_id, transitions=running(session_id, kernels=2).transitions, notes=notes)
        await recorder.record(record)
        view, events = await recorder.view(session_id), await recorder.events(session_id)
        await recorder.record(record)
        await recorder.record(running(session_id, kernels=2))
        assert await recorder.events(session_id) == events
        again = await recorder.view(session_id)
        assert (again.status, again.kernels) == (view.status, view.kernels)

    async def test_a_stale_step_is_dropped_and_those_that_follow_from_the_truth_are_taken(
        self, recorder: Recorder
    ) -> None:
        session_id = await placed(recorder, spec())
        await recorder.record(Record(session_id=session_id, transitions=steps(S.PREPARING, S.PREPARED, S.CREATING)))
        late = steps(S.PREPARING, S.PULLING, S.PREPARED, S.CREATING, S.RUNNING)
        await recorder.record(Record(session_id=session_id, transitions=late))
        assert await path(recorder, session_id) == [*PLACED, S.PREPARED, S.CREATING, S.RUNNING]

    async def test_the_status_is_the_fold_of_the_kernels_after_each_step(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(kernels=2))
        await recorder.record(Record(session_id=session_id, transitions=steps(S.PREPARING, S.PULLING, kernel=1)))
        await recorder.record(Record(session_id=session_id, transitions=steps(S.PREPARING, S.PREPARED, kernel=0)))
        shown = [event.session_status for event in await recorder.events(session_id)]
        assert shown == [S.PENDING, S.SCHEDULED, S.SCHEDULED, S.PREPARING, S.PULLING, S.PULLING]

    async def test_a_step_that_is_not_in_the_table_is_a_fault(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec())
        step = Transition(kernel=0, from_status=S.PREPARING, to_status=S.RUNNING)
        with pytest.raises(ValueError, match="from PREPARING to RUNNING"):
            await recorder.record(Record(session_id=session_id, transitions=(step,)))
        assert (await recorder.view(session_id)).status is S.PREPARING

    async def test_what_is_no_kernel_or_session_of_ours_is_passed_over(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec())
        facts = KernelFacts(kernel=7, digest="sha256:d")
        await recorder.record(
            Record(session_id=session_id, transitions=steps(S.PREPARING, S.PREPARED, kernel=7), facts=(facts,))
        )
        await recorder.record(running("ses-unknown"))
        assert (await recorder.finish(end("ses-unknown", S.RUNNING, S.TERMINATED))).woken == ()
        assert (await recorder.view(session_id)).status is S.PREPARING


class TestFinishing:
    async def test_writes_who_why_and_how_and_frees_what_was_held(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(gib=2, kernels=2))
        await recorder.record(running(session_id, kernels=2))
        log = LogTail.of(b"out\n\x00\xff", total_bytes=99)
        exits = (ContainerExit(kernel=0, container_id="c0", exit_code=137, oom_killed=True, log=log),)
        actor = Actor(user_id="usr-root", name="root", superadmin=True)
        reason = Reason.TERMINATED_BY_ADMIN
        finish = end(
            session_id, S.RUNNING, S.TERMINATED, kernels=2, reason=reason, exits=exits, actor=actor, why="stuck"
        )
        await recorder.finish(finish)
        view = await recorder.view(session_id)
        assert (view.status, view.reason, view.ended_by, view.ended_why) == (S.TERMINATED, reason, "root", "stuck")
        first, second = view.kernels
        assert (first.exit_code, first.oom_killed, first.container_id) == (137, True, "c0")
        assert (second.exit_code, second.oom_killed, second.container_id) == (None, False, None)
        assert view.ended_at is not None
        assert first.ended_at is not None
        kept = await recorder.log(session_id, 0)
        assert (kept.data, kept.total_bytes, kept.truncated) == (b"out\n\x00\xff", 99, True)
        assert (await recorder.log(session_id, 1)).data is None
        assert [event.actor for event in await recorder.events(session_id)][-2:] == ["root", "root"]
        assert await free(recorder) == (4.0, 8)

    async def test_repeated_it_changes_nothing_and_wakes_again(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(gib=8))
        [waiting] = await added(recorder, spec(gib=8))
        await recorder.place(Place(session_id=waiting))
        finish = end(session_id, S.PREPARING, S.ERROR, reason=Reason.IMAGE_NOT_FOUND, message="no such tag")
        first = await recorder.finish(finish)
        view, events = await recorder.view(session_id), await recorder.events(session_id)
        # The first answer may have been lost with the worker that asked.
        assert await recorder.finish(finish) == first
        assert first.woken == (waiting,)
        again = await recorder.view(session_id)
        assert (again.ended_at, again.kernels, again.message) == (view.ended_at, view.kernels, "no such tag")
        assert await recorder.events(session_id) == events
        assert await free(recorder) == (4.0, 8)

    async def test_the_first_end_wins_and_a_later_one_only_adds_what_was_not_known(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec())
        await recorder.record(running(session_id))
        await recorder.finish(end(session_id, S.RUNNING, S.TERMINATED, reason=Reason.TERMINATED_BY_USER))
        exits = (ContainerExit(kernel=0, exit_code=143, log=LogTail.of(b"bye", total_bytes=3)),)
        late = end(session_id, S.RUNNING, S.ERROR, reason=Reason.CONTAINER_LOST, message="late", exits=exits)
        await recorder.finish(late)
        view = await recorder.view(session_id)
        assert (view.status, view.reason, view.message) == (S.TERMINATED, Reason.TERMINATED_BY_USER, "")
        assert (view.kernels[0].exit_code, (await recorder.log(session_id, 0)).data) == (143, b"bye")
        other = (ContainerExit(kernel=0, exit_code=0, log=LogTail.of(b"other", total_bytes=5)),)
        await recorder.finish(end(session_id, S.RUNNING, S.TERMINATED, exits=other))
        view = await recorder.view(session_id)
        assert (view.kernels[0].exit_code, (await recorder.log(session_id, 0)).data) == (143, b"bye")

    async def test_a_log_that_came_empty_is_filled_in_later(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec())
        await recorder.record(running(session_id))
        gone = (ContainerExit(kernel=0, exit_code=None),)
        await recorder.finish(end(session_id, S.RUNNING, S.ERROR, reason=Reason.CONTAINER_LOST, exits=gone))
        found = (ContainerExit(kernel=0, exit_code=3, log=LogTail.of(b"found", total_bytes=5)),)
        await recorder.finish(end(session_id, S.RUNNING, S.ERROR, exits=found))
        view = await recorder.view(session_id)
        assert (view.kernels[0].exit_code, (await recorder.log(session_id, 0)).data) == (3, b"found")

    async def test_a_placement_whose_answer_was_lost_does_not_outlive_the_end(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(gib=8))
        await recorder.finish(end(session_id, S.PENDING, S.CANCELLED, reason=Reason.CANCELLED_BY_ADMIN))
        assert (await recorder.view(session_id)).status is S.CANCELLED
        assert await free(recorder) == (4.0, 8)
        [*_, last] = await recorder.events(session_id)
        assert (last.from_status, last.to_status) == (S.PREPARING, S.CANCELLED)

    async def test_while_a_kernel_goes_on_nothing_is_freed(self, recorder: Recorder) -> None:
        session_id = await placed(recorder, spec(kernels=2))
        await recorder.record(running(session_id, kernels=2))
        await recorder.finish(end(session_id, S.RUNNING, S.TERMINATED, kernels=1))
        view = await recorder.view(session_id)
        assert (view.status, view.ended_at, view.reason) == (S.RUNNING, None, None)
        assert await free(recorder) == (2.0, 6)


class TestAgents:
    async def test_what_an_agent_says_replaces_what_it_said_before(self, recorder: Recorder) -> None:
        await recorder.record_agent(online(cpu=2, gib=4, platform="linux/amd64"))
        await recorder.record_agent(online(cpu=8, gib=16, platform="linux/arm64"))
        [room] = await recorder.rooms()
        assert room == AgentRoom(
            agent_id="a1",
            platform="linux/arm64",
            cpu=8.0,
            memory_bytes=16 * GIB,
            gpu=0,
            cpu_free=8.0,
            memory_bytes_free=16 * GIB,
            gpu_free=0,
        )

    async def test_a_smaller_agent_keeps_what_it_holds_and_takes_no_more(self, recorder: Recorder) -> None:
        await placed(recorder, spec(gib=6))
        await recorder.record_agent(online(gib=4))
        assert await free(recorder) == (3.0, -2)
        [waiting] = await added(recorder, spec())
        assert (await recorder.place(Place(session_id=waiting))).reason is Reason.NO_CAPACITY
