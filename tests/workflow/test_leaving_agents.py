"""Agents that sessions have to leave: placed anew before they run, given time once they do, and nothing of it too often."""

from contextlib import AsyncExitStack
from datetime import datetime, timedelta

from temporalio.testing import WorkflowEnvironment

from tests.rig.eventually import eventually
from tests.workflow.fleet import ADMIN, Fleet, workers_of
from tests.workflow.scenarios import reaches
from tests.workflow.world import World
from towline.domain.agents import Leave, Stay
from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import Reason, Status
from towline.domain.queues import Signal
from towline.domain.sessions import ClusterMode, SessionSpec
from workers.links import Links
from workflows import options

S = Status
PLACED = [S.SCHEDULED, S.PREPARING]
STARTED = [S.PREPARED, S.CREATING, S.RUNNING]


async def lost(fleet: Fleet, *, after: float = 300.0, agent_id: str = "a1") -> Leave:
    deadline = await fleet.env.get_current_time() + timedelta(seconds=after)
    return Leave(agent_id=agent_id, reason=Reason.AGENT_LOST, message=f"agent {agent_id} is LOST", deadline=deadline)


def drained(deadline: datetime | None = None) -> Leave:
    return Leave(
        agent_id="a1",
        reason=Reason.AGENT_DRAINED,
        message="agent a1 is drained",
        deadline=deadline,
        actor=ADMIN,
        why="new disks",
    )


async def pulling(fleet: Fleet) -> SessionSpec:
    fleet.world.images.present = False
    spec = fleet.spec()
    await fleet.start(spec)
    await reaches(fleet, spec.session_id, S.PULLING)
    return spec


async def moved(fleet: Fleet, *, to: str) -> SessionSpec:
    """A session that was pulling on a1 when that was lost, and runs now."""
    spec = await pulling(fleet)
    fleet.world.records.agents = (to,)
    await fleet.tell(spec, await lost(fleet))
    await eventually(lambda: S.PENDING in fleet.world.records.path(spec.session_id), timeout=10)
    fleet.world.images.gate.set()
    await reaches(fleet, spec.session_id, S.RUNNING)
    return spec


async def running(fleet: Fleet, **fields: object) -> SessionSpec:
    spec = fleet.spec(**fields)
    await fleet.start(spec)
    await reaches(fleet, spec.session_id, S.RUNNING)
    return spec


async def ended(fleet: Fleet, spec: SessionSpec) -> tuple[Status, Reason]:
    """How the records have it first: what is added later is the clean-up's."""

    def seen() -> tuple[Status, Reason]:
        return fleet.world.records.status(spec.session_id), fleet.world.records.finishes[spec.session_id][0].reason

    found: tuple[Status, Reason] = await eventually(seen, timeout=20)
    return found


class TestBeforeItRuns:
    async def test_a_session_is_placed_anew_and_says_why(self, fleet: Fleet) -> None:
        spec = await moved(fleet, to="a2")
        anew = [S.PENDING, *PLACED]
        path = fleet.world.records.path(spec.session_id)
        assert path[: len(PLACED) + 1 + len(anew)] == [*PLACED, S.PULLING, *anew]
        assert path[-len(STARTED) :] == STARTED
        [step] = [one for one in fleet.world.records.transitions[spec.session_id] if one.to_status is S.PENDING]
        assert (step.reason, step.message) == (Reason.AGENT_LOST, "agent a1 is LOST")
        assert fleet.world.containers.containers[spec.session_id, 0].agent_id == "a2"

    async def test_what_was_said_of_an_agent_that_was_left_is_not_held_against_it(self, fleet: Fleet) -> None:
        spec = await moved(fleet, to="a1")
        assert fleet.world.records.path(spec.session_id).count(S.PENDING) == 1
        assert fleet.world.containers.containers[spec.session_id, 0].agent_id == "a1"

    async def test_who_waits_for_its_place_is_woken(self, fleet: Fleet) -> None:
        fleet.world.records.capacity = 1
        leaving, waiting = await pulling(fleet), fleet.spec()
        handle = await fleet.start(waiting)
        await eventually(lambda: fleet.world.records.waiting == [waiting.session_id], timeout=10)
        await fleet.tell(leaving, await lost(fleet))

        async def is_woken() -> None:
            events = [event async for event in handle.fetch_history_events()]
            signals = [event.workflow_execution_signaled_event_attributes.signal_name for event in events]
            assert Signal.CAPACITY_FREED in signals

        await eventually(is_woken, timeout=30)

    async def test_it_is_placed_only_so_often(self, fleet: Fleet) -> None:
        spec = await pulling(fleet)
        for placement in range(1, options.PLACEMENTS_MAX + 1):

            def is_pulling(placement: int = placement) -> None:
                assert fleet.world.records.path(spec.session_id).count(S.PULLING) == placement

            await eventually(is_pulling, timeout=10)
            await fleet.tell(spec, await lost(fleet))
        assert await ended(fleet, spec) == (S.ERROR, Reason.AGENT_LOST)

    async def test_a_start_on_a_lost_agent_is_not_waited_for(self, env: WorkflowEnvironment, world: World) -> None:
        """Its undoing would wait, for as long as the agent is away."""
        world.containers.gate.clear()
        control, *agents = workers_of(env.client, world, ("a1", "a2"))
        fleet = Fleet(client=env.client, world=world, env=env)
        async with AsyncExitStack() as stack:
            for worker in (control, *agents[2:]):
                await stack.enter_async_context(worker)
            async with AsyncExitStack() as first:
                for worker in agents[:2]:
                    await first.enter_async_context(worker)
                spec = fleet.spec()
                await fleet.start(spec)
                await world.containers.starting.wait()
            world.records.agents = ("a2",)
            world.containers.gate.set()
            await fleet.tell(spec, await lost(fleet))
            await reaches(fleet, spec.session_id, S.RUNNING)
            assert world.containers.containers[spec.session_id, 0].agent_id == "a2"
            await fleet.exit(spec)
            assert await ended(fleet, spec) == (S.TERMINATED, Reason.EXITED)

    async def test_what_has_started_elsewhere_is_ended_before_all_are_placed_anew(
        self, env: WorkflowEnvironment, world: World
    ) -> None:
        world.containers.gate.clear()
        world.containers.gated = ("a1",)
        world.records.agents = ("a1", "a2")
        control, *agents = workers_of(env.client, world, ("a1", "a2"))
        fleet = Fleet(client=env.client, world=world, env=env)
        async with AsyncExitStack() as stack:
            for worker in (control, *agents[2:]):
                await stack.enter_async_context(worker)
            async with AsyncExitStack() as first:
                for worker in agents[:2]:
                    await first.enter_async_context(worker)
                spec = fleet.spec(kernels=2, cluster_mode=ClusterMode.MULTI_AGENT)
                await fleet.start(spec)
                await eventually(lambda: world.containers.starts == 2, timeout=10)
                await eventually(lambda: (spec.session_id, 1) in world.containers.containers, timeout=10)
            world.records.agents = ("a2", "a2")
            await fleet.tell(spec, await lost(fleet))
            await reaches(fleet, spec.session_id, S.RUNNING)
            assert (world.containers.ends, world.containers.starts) == (1, 4)
            assert {one.agent_id for one in world.containers.containers.values()} == {"a2"}

    async def test_an_exit_on_an_agent_that_was_left_is_not_the_sessions(self, fleet: Fleet) -> None:
        spec = await moved(fleet, to="a2")
        late = ContainerExit(kernel=0, container_id="on a1", exit_code=9)
        await Links(fleet.client, "a1").container_exited(spec.session_id, late)
        await fleet.exit(spec, code=0)
        assert await ended(fleet, spec) == (S.TERMINATED, Reason.EXITED)
        [exit_] = fleet.world.records.finishes[spec.session_id][0].exits
        assert exit_.exit_code == 0


class TestOnceItRuns:
    async def test_it_ends_when_its_agent_stays_away(self, fleet: Fleet) -> None:
        spec = await running(fleet)
        await fleet.tell(spec, await lost(fleet, after=300))
        await fleet.env.sleep(299)
        assert fleet.world.records.status(spec.session_id) is S.RUNNING
        [note] = [note for note in fleet.world.records.notes[spec.session_id] if note.kind == "agent-lost"]
        assert "unless that changes, the session ends at" in note.message
        await fleet.env.sleep(2)
        assert await ended(fleet, spec) == (S.ERROR, Reason.AGENT_LOST)

    async def test_the_end_is_shown_before_the_agent_is_back_and_its_container_goes_then(self, fleet: Fleet) -> None:
        fleet.world.containers.end_gate.clear()
        spec = await running(fleet)
        await fleet.tell(spec, await lost(fleet, after=1))
        await fleet.env.sleep(2)
        assert await ended(fleet, spec) == (S.ERROR, Reason.AGENT_LOST)
        assert (spec.session_id, 0) in fleet.world.containers.containers
        fleet.world.containers.end_gate.set()
        await eventually(lambda: not fleet.world.containers.containers, timeout=10)

    async def test_it_goes_on_when_its_agent_is_back_in_time(self, fleet: Fleet) -> None:
        spec = await running(fleet)
        await fleet.tell(spec, await lost(fleet, after=300))
        await fleet.env.sleep(100)
        await fleet.tell(spec, Stay(agent_id="a1", reason=Reason.AGENT_LOST))
        await fleet.env.sleep(3600)
        assert fleet.world.records.status(spec.session_id) is S.RUNNING
        assert [note.kind for note in fleet.world.records.notes[spec.session_id]] == ["agent-lost", "agent-back"]
        await fleet.exit(spec)
        assert await ended(fleet, spec) == (S.TERMINATED, Reason.EXITED)

    async def test_a_time_limit_that_comes_first_is_the_reason(self, fleet: Fleet) -> None:
        spec = await running(fleet, time_limit_seconds=60.0)
        await fleet.tell(spec, await lost(fleet, after=300))
        await fleet.env.sleep(61)
        assert await ended(fleet, spec) == (S.TERMINATED, Reason.TIME_LIMIT)

    async def test_an_end_that_is_asked_for_does_not_wait_for_a_lost_agent(self, fleet: Fleet) -> None:
        fleet.world.containers.end_gate.clear()
        spec = await running(fleet)
        await fleet.tell(spec, await lost(fleet))
        await fleet.ask(spec, Signal.TERMINATE)
        assert await ended(fleet, spec) == (S.TERMINATED, Reason.TERMINATED_BY_USER)
        fleet.world.containers.end_gate.set()

    async def test_a_drained_agent_is_left_at_the_deadline_by_whom_and_why(self, fleet: Fleet) -> None:
        spec = await running(fleet)
        now = await fleet.env.get_current_time()
        await fleet.tell(spec, drained(deadline=now + timedelta(seconds=60)))
        await fleet.env.sleep(61)
        assert await ended(fleet, spec) == (S.TERMINATED, Reason.AGENT_DRAINED)
        [finish] = fleet.world.records.finishes[spec.session_id]
        assert (finish.actor, finish.why) == (ADMIN, "new disks")
        assert fleet.world.containers.graces == [spec.stop_grace_seconds]

    async def test_without_a_deadline_it_may_come_to_its_own_end(self, fleet: Fleet) -> None:
        spec = await running(fleet)
        await fleet.tell(spec, drained())
        await fleet.env.sleep(24 * 3600)
        assert fleet.world.records.status(spec.session_id) is S.RUNNING
        await fleet.exit(spec)
        assert await ended(fleet, spec) == (S.TERMINATED, Reason.EXITED)
