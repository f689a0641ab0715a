"""The session workflow: its path through the statuses, its ends, and what each end leaves."""

import pytest

from tests.rig.eventually import eventually
from tests.workflow.fleet import ADMIN, Fleet
from tests.workflow.scenarios import reaches
from towline.domain.lifecycle import Reason, Status
from towline.domain.progress import Verdict
from towline.domain.pulling import WaitOutcome
from towline.domain.queues import Signal, kernel_start_workflow_id
from towline.errors import ContainerError, PullError
from workflows.session import Session

S = Status
WARM = [S.SCHEDULED, S.PREPARING, S.PREPARED, S.CREATING, S.RUNNING, S.TERMINATED]
COLD = [S.SCHEDULED, S.PREPARING, S.PULLING, S.PREPARED, S.CREATING, S.RUNNING, S.TERMINATED]


class TestWarmStart:
    async def test_goes_through_the_statuses_and_ends_with_the_exit_code(self, fleet: Fleet) -> None:
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.exit(spec, code=3)
        assert await fleet.result(handle) == S.TERMINATED
        assert fleet.world.records.path(spec.session_id) == WARM
        [finish] = fleet.world.records.finishes[spec.session_id]
        assert finish.reason is Reason.EXITED
        assert finish.exits[0].exit_code == 3
        assert not fleet.world.records.holding

    async def test_takes_at_most_45_events_with_its_child(self, fleet: Fleet) -> None:
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.exit(spec)
        await fleet.result(handle)
        child = fleet.client.get_workflow_handle(kernel_start_workflow_id(spec.session_id, 0))
        events = [event async for event in handle.fetch_history_events()]
        events += [event async for event in child.fetch_history_events()]
        assert len(events) <= 45

    async def test_an_exit_before_the_start_is_known_is_not_lost(self, fleet: Fleet) -> None:
        fleet.world.containers.gate.clear()
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await fleet.world.containers.starting.wait()
        await fleet.exit(spec, code=7)
        fleet.world.containers.gate.set()
        await fleet.result(handle)
        assert fleet.world.records.path(spec.session_id) == WARM
        assert fleet.world.records.finishes[spec.session_id][0].exits[0].exit_code == 7

    async def test_a_killed_command_is_told_from_one_that_ran_out_of_memory(self, fleet: Fleet) -> None:
        for oom, reason in ((True, Reason.OOM_KILLED), (False, Reason.EXITED)):
            spec = fleet.spec()
            handle = await fleet.start(spec)
            await reaches(fleet, spec.session_id, S.RUNNING)
            await fleet.exit(spec, code=137, oom=oom)
            await fleet.result(handle)
            assert fleet.world.records.finishes[spec.session_id][0].reason is reason


class TestColdStart:
    async def test_pulls_between_preparing_and_prepared(self, fleet: Fleet) -> None:
        fleet.world.images.present = False
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.PULLING)
        fleet.world.images.gate.set()
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.exit(spec)
        await fleet.result(handle)
        assert fleet.world.records.path(spec.session_id) == COLD
        kinds = [note.kind for note in fleet.world.records.notes[spec.session_id]]
        assert kinds == ["pull-started", "pull-finished"]
        waits = fleet.world.records.waits[spec.session_id]
        assert [(wait.report.pull_id, wait.outcome) for wait in waits] == [
            ("p", WaitOutcome.WAITING),
            ("p", WaitOutcome.SUCCEEDED),
        ]

    async def test_a_failed_pull_ends_the_session_with_its_reason(self, fleet: Fleet) -> None:
        fleet.world.images.present = False
        fleet.world.images.failure = PullError("no such tag", reason=Reason.IMAGE_NOT_FOUND, retryable=False)
        fleet.world.images.gate.set()
        spec = fleet.spec()
        handle = await fleet.start(spec)
        assert await fleet.result(handle) == S.ERROR
        [finish] = fleet.world.records.finishes[spec.session_id]
        assert (finish.reason, finish.message) == (Reason.IMAGE_NOT_FOUND, "no such tag")
        assert fleet.world.containers.starts == 0

    async def test_a_changed_verdict_is_kept_as_an_event(self, fleet: Fleet) -> None:
        fleet.world.images.present = False
        fleet.world.images.verdicts = [Verdict.STALLED, Verdict.HEALTHY]
        spec = fleet.spec()
        handle = await fleet.start(spec)

        async def two_verdicts() -> None:
            notes = fleet.world.records.notes[spec.session_id]
            verdicts = [note.message for note in notes if note.kind == "verdict"]
            assert verdicts == ["a1: stalled", "a1: healthy"]

        await eventually(two_verdicts, timeout=10)
        fleet.world.images.gate.set()
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.exit(spec)
        await fleet.result(handle)

    async def test_an_image_that_vanishes_before_create_is_brought_once_more(self, fleet: Fleet) -> None:
        gone = ContainerError("no such image", reason=Reason.IMAGE_VANISHED, retryable=False)
        fleet.world.containers.failures = [gone]
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.exit(spec)
        await fleet.result(handle)
        assert fleet.world.records.path(spec.session_id) == [
            *WARM[:4],
            S.PREPARING,
            S.PREPARED,
            S.CREATING,
            S.RUNNING,
            S.TERMINATED,
        ]

    async def test_an_image_that_vanishes_again_ends_the_session(self, fleet: Fleet) -> None:
        gone = ContainerError("no such image", reason=Reason.IMAGE_VANISHED, retryable=False)
        fleet.world.containers.failures = [gone, gone]
        spec = fleet.spec()
        assert await fleet.result(await fleet.start(spec)) == S.ERROR
        assert fleet.world.records.finishes[spec.session_id][0].reason is Reason.IMAGE_VANISHED


class TestWhatIsSeenInTemporal:
    async def test_stuck_pulls_can_be_listed_by_their_verdict(self, dev_fleet: Fleet) -> None:
        dev_fleet.world.images.present = False
        dev_fleet.world.images.verdicts = [Verdict.STALLED]
        spec = dev_fleet.spec()
        handle = await dev_fleet.start(spec)

        async def listed(expected: bool) -> None:
            async def seen() -> None:
                query = 'TowlineVerdict="stalled" AND TowlineStatus="PULLING"'
                ids = [found.id async for found in dev_fleet.client.list_workflows(query)]
                assert (handle.id in ids) is expected

            await eventually(seen, timeout=10)

        await listed(True)
        dev_fleet.world.images.gate.set()
        await reaches(dev_fleet, spec.session_id, S.RUNNING)
        await listed(False)
        await dev_fleet.exit(spec)
        await handle.result()


class TestEndingWhilePulling:
    @pytest.mark.parametrize("signal", [Signal.CANCEL, Signal.TERMINATE])
    async def test_the_transfer_is_aborted_before_cancelled_is_shown(self, fleet: Fleet, signal: Signal) -> None:
        fleet.world.images.present = False
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.PULLING)
        await fleet.ask(spec, signal, why="changed my mind")
        assert await fleet.result(handle) == S.CANCELLED
        path = fleet.world.records.path(spec.session_id)
        assert path == [S.SCHEDULED, S.PREPARING, S.PULLING, S.TERMINATING, S.CANCELLED]
        assert fleet.world.images.aborted == 1
        assert fleet.world.containers.starts == 0
        assert fleet.world.records.waits[spec.session_id][-1].outcome is WaitOutcome.LEFT

    async def test_force_shows_cancelled_at_once_and_records_who_and_why(self, fleet: Fleet) -> None:
        fleet.world.images.present = False
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.PULLING)
        await fleet.ask(spec, Signal.FORCE_CANCEL, actor=ADMIN, why="stuck")
        assert await fleet.result(handle) == S.CANCELLED
        assert fleet.world.records.path(spec.session_id)[-2:] == [S.PULLING, S.CANCELLED]
        [finish] = fleet.world.records.finishes[spec.session_id]
        assert finish.reason is Reason.CANCELLED_BY_ADMIN
        assert finish.actor == ADMIN
        assert finish.why == "stuck"
        assert fleet.world.images.aborted == 1

    async def test_repeated_and_racing_signals_are_settled_by_the_first(self, fleet: Fleet) -> None:
        fleet.world.images.present = False
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.PULLING)
        await fleet.ask(spec, Signal.CANCEL)
        await fleet.ask(spec, Signal.FORCE_CANCEL, actor=ADMIN)
        await fleet.ask(spec, Signal.TERMINATE)
        assert await fleet.result(handle) == S.CANCELLED
        assert fleet.world.records.finishes[spec.session_id][0].reason is Reason.CANCELLED_BY_USER
        assert not fleet.world.records.holding


class TestRaces:
    @pytest.mark.parametrize("round_", range(5))
    async def test_a_pull_that_ends_at_the_instant_of_the_cancel_leaves_nothing(
        self, dev_fleet: Fleet, round_: int
    ) -> None:
        dev_fleet.world.images.present = False
        spec = dev_fleet.spec()
        handle = await dev_fleet.start(spec)
        await reaches(dev_fleet, spec.session_id, S.PULLING)
        dev_fleet.world.images.gate.set()
        await dev_fleet.ask(spec, Signal.FORCE_CANCEL)
        assert await handle.result() in {S.CANCELLED, S.TERMINATED}
        assert not dev_fleet.world.containers.containers
        assert not dev_fleet.world.records.holding

    async def test_cancel_during_start_leaves_no_container(self, dev_fleet: Fleet) -> None:
        dev_fleet.world.containers.gate.clear()
        spec = dev_fleet.spec()
        handle = await dev_fleet.start(spec)
        await dev_fleet.world.containers.starting.wait()
        await dev_fleet.ask(spec, Signal.FORCE_CANCEL)
        await reaches(dev_fleet, spec.session_id, S.CANCELLED)
        dev_fleet.world.containers.gate.set()
        assert await handle.result() == S.CANCELLED
        assert not dev_fleet.world.containers.containers
        assert dev_fleet.world.containers.ends >= 1


class TestEndingLater:
    @pytest.mark.parametrize("signal", [Signal.CANCEL, Signal.TERMINATE])
    async def test_a_running_session_is_stopped_with_grace(self, fleet: Fleet, signal: Signal) -> None:
        spec = fleet.spec(stop_grace_seconds=3.0)
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.ask(spec, signal)
        assert await fleet.result(handle) == S.TERMINATED
        assert fleet.world.records.path(spec.session_id) == [*WARM[:5], S.TERMINATING, S.TERMINATED]
        [finish] = fleet.world.records.finishes[spec.session_id]
        assert finish.reason is Reason.TERMINATED_BY_USER
        assert finish.exits[0].exit_code == 143
        assert fleet.world.containers.graces == [3.0]

    async def test_force_ends_a_termination_that_hangs_and_the_clean_up_goes_on(self, fleet: Fleet) -> None:
        fleet.world.containers.end_gate.clear()
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.ask(spec, Signal.TERMINATE)
        await reaches(fleet, spec.session_id, S.TERMINATING)
        await fleet.ask(spec, Signal.FORCE_CANCEL, actor=ADMIN)
        await reaches(fleet, spec.session_id, S.TERMINATED)
        assert fleet.world.containers.containers
        fleet.world.containers.end_gate.set()
        assert await fleet.result(handle) == S.TERMINATED
        assert not fleet.world.containers.containers
        assert fleet.world.records.finishes[spec.session_id][-1].exits[0].exit_code == 143

    async def test_a_failed_start_is_an_error_with_its_reason(self, fleet: Fleet) -> None:
        failure = ContainerError("exec: no such file", reason=Reason.COMMAND_NOT_FOUND, retryable=False)
        fleet.world.containers.failures = [failure]
        spec = fleet.spec()
        assert await fleet.result(await fleet.start(spec)) == S.ERROR
        assert fleet.world.records.finishes[spec.session_id][0].reason is Reason.COMMAND_NOT_FOUND

    async def test_the_time_limit_ends_a_running_session(self, fleet: Fleet) -> None:
        spec = fleet.spec(time_limit_seconds=3600.0)
        await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.env.sleep(3601)
        await reaches(fleet, spec.session_id, S.TERMINATED)
        assert fleet.world.records.finishes[spec.session_id][0].reason is Reason.TIME_LIMIT

    async def test_a_workflow_cancelled_in_temporal_ends_the_session_too(self, fleet: Fleet) -> None:
        fleet.world.images.present = False
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.PULLING)
        await handle.cancel()
        assert await fleet.result(handle) == S.CANCELLED
        assert fleet.world.images.aborted == 1
        assert not fleet.world.records.holding


class TestManyKernels:
    async def test_all_start_and_one_failure_ends_all(self, fleet: Fleet) -> None:
        fleet.world.records.agents = ("a1", "a2", "a2")
        spec = fleet.spec(kernels=3)
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        assert len(fleet.world.containers.containers) == 3
        await fleet.exit(spec, kernel=1, code=5)
        assert await fleet.result(handle) == S.TERMINATED
        assert not fleet.world.containers.containers
        reasons = {step.kernel: step.reason for step in fleet.world.records.transitions[spec.session_id]}
        assert reasons == {0: Reason.PEER_ENDED, 1: Reason.EXITED, 2: Reason.PEER_ENDED}

    async def test_a_helper_that_is_done_does_not_end_the_session(self, fleet: Fleet) -> None:
        fleet.world.records.agents = ("a1", "a2")
        spec = fleet.spec(kernels=2)
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.RUNNING)
        await fleet.exit(spec, kernel=1, code=0)
        assert await handle.query(Session.exit_of, 1) is not None
        assert fleet.world.records.status(spec.session_id) is S.RUNNING
        await fleet.exit(spec, kernel=0, code=0)
        assert await fleet.result(handle) == S.TERMINATED
