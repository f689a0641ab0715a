"""The session lives whose histories are committed and replayed: one function each."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.rig.eventually import eventually
from tests.workflow.fleet import ADMIN, Fleet
from towline.domain.agents import Leave, Stay
from towline.domain.lifecycle import Reason, Status
from towline.domain.queues import Signal
from towline.domain.sessions import SessionSpec
from towline.errors import ContainerError, PullError

Scenario = Callable[[Fleet], Awaitable[SessionSpec]]


async def reaches(fleet: Fleet, session_id: str, status: Status) -> None:
    """Wait until the records show the session in `status`."""

    def seen() -> None:
        assert fleet.world.records.status(session_id) is status

    await eventually(seen, timeout=10)


async def happy_path(fleet: Fleet) -> SessionSpec:
    """Image present, command exits with 0."""
    return await _runs_and_exits(fleet, code=0)


async def exit_not_zero(fleet: Fleet) -> SessionSpec:
    """Image present, command exits with 3."""
    return await _runs_and_exits(fleet, code=3)


async def pulled(fleet: Fleet) -> SessionSpec:
    """Image absent, pulled, command exits with 0."""
    fleet.world.images.present = False
    fleet.world.images.gate.set()
    return await _runs_and_exits(fleet, code=0)


async def cancelled_in_pulling(fleet: Fleet) -> SessionSpec:
    """The owner cancels while the image is pulled."""
    return await _ended_in_pulling(fleet, Signal.CANCEL)


async def force_cancelled_in_pulling(fleet: Fleet) -> SessionSpec:
    """A superadmin forces the end while the image is pulled."""
    return await _ended_in_pulling(fleet, Signal.FORCE_CANCEL)


async def pull_failed(fleet: Fleet) -> SessionSpec:
    """The pull fails for good."""
    fleet.world.images.present = False
    fleet.world.images.gate.set()
    fleet.world.images.failure = PullError("no such tag", reason=Reason.IMAGE_NOT_FOUND, retryable=False)
    return await _ends(fleet, Status.ERROR)


async def container_failed(fleet: Fleet) -> SessionSpec:
    """The container cannot be started."""
    failure = ContainerError("exec: no such file", reason=Reason.COMMAND_NOT_FOUND, retryable=False)
    fleet.world.containers.failures = [failure]
    return await _ends(fleet, Status.ERROR)


async def terminated(fleet: Fleet) -> SessionSpec:
    """The owner terminates a running session."""
    spec = fleet.spec()
    handle = await fleet.start(spec)
    await reaches(fleet, spec.session_id, Status.RUNNING)
    await fleet.ask(spec, Signal.TERMINATE)
    await fleet.result(handle)
    return spec


async def placed_anew(fleet: Fleet) -> SessionSpec:
    """The agent is lost while the image is pulled; the session is placed anew and runs."""
    fleet.world.images.present = False
    spec = fleet.spec()
    handle = await fleet.start(spec)
    await reaches(fleet, spec.session_id, Status.PULLING)
    await fleet.tell(spec, Leave(agent_id="a1", reason=Reason.AGENT_LOST, message="agent a1 is LOST"))
    await eventually(lambda: Status.PENDING in fleet.world.records.path(spec.session_id), timeout=10)
    fleet.world.images.gate.set()
    await reaches(fleet, spec.session_id, Status.RUNNING)
    await fleet.exit(spec)
    await fleet.result(handle)
    return spec


async def given_up_on_a_lost_agent(fleet: Fleet) -> SessionSpec:
    """The agent of a running session is lost, is back, and is lost for good."""
    spec = fleet.spec()
    handle = await fleet.start(spec)
    await reaches(fleet, spec.session_id, Status.RUNNING)
    now = datetime.now(UTC)
    lost = Leave(agent_id="a1", reason=Reason.AGENT_LOST, message="agent a1 is LOST", deadline=now + timedelta(hours=1))
    await fleet.tell(spec, lost)
    await fleet.tell(spec, Stay(agent_id="a1", reason=Reason.AGENT_LOST))
    await fleet.tell(spec, replace(lost, deadline=now))
    await fleet.result(handle)
    return spec


SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.__name__: scenario
    for scenario in (
        happy_path,
        exit_not_zero,
        pulled,
        cancelled_in_pulling,
        force_cancelled_in_pulling,
        pull_failed,
        container_failed,
        terminated,
        placed_anew,
        given_up_on_a_lost_agent,
    )
}


async def _runs_and_exits(fleet: Fleet, *, code: int) -> SessionSpec:
    spec = fleet.spec()
    handle = await fleet.start(spec)
    await reaches(fleet, spec.session_id, Status.RUNNING)
    await fleet.exit(spec, code=code)
    await fleet.result(handle)
    return spec


async def _ended_in_pulling(fleet: Fleet, signal: Signal) -> SessionSpec:
    fleet.world.images.present = False
    spec = fleet.spec()
    handle = await fleet.start(spec)
    await reaches(fleet, spec.session_id, Status.PULLING)
    await fleet.ask(spec, signal, actor=ADMIN, why="stuck")
    await fleet.result(handle)
    return spec


async def _ends(fleet: Fleet, status: Status) -> SessionSpec:
    spec = fleet.spec()
    handle = await fleet.start(spec)
    assert await fleet.result(handle) == status
    return spec
