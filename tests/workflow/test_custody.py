"""What sessions say of the containers on an agent: which are wanted there, and which are missing."""

import pytest

from tests.rig.eventually import eventually
from tests.workflow.fleet import Fleet
from tests.workflow.scenarios import reaches
from towline.domain.ids import new_session_id
from towline.domain.lifecycle import Status
from towline.domain.sessions import SessionSpec
from workers.connection import fleet_id
from workers.custody import Custody


@pytest.fixture
async def running(dev_fleet: Fleet) -> SessionSpec:
    spec = dev_fleet.spec()
    await dev_fleet.start(spec)
    await reaches(dev_fleet, spec.session_id, Status.RUNNING)
    return spec


async def custody_of(fleet: Fleet, agent_id: str = "a1") -> Custody:
    return Custody(fleet.client, agent_id, await fleet_id(fleet.client))


async def test_a_container_is_wanted_where_its_session_has_it(dev_fleet: Fleet, running: SessionSpec) -> None:
    here, elsewhere = await custody_of(dev_fleet), await custody_of(dev_fleet, "a2")
    assert await here.is_wanted(running.session_id, 0)
    assert not await here.is_wanted(running.session_id, 1)
    assert not await elsewhere.is_wanted(running.session_id, 0)


async def test_a_session_that_is_over_or_unknown_wants_nothing(dev_fleet: Fleet, running: SessionSpec) -> None:
    custody = await custody_of(dev_fleet)
    assert await custody.is_wanted(running.session_id, 0)
    await dev_fleet.client.get_workflow_handle(f"session/{running.session_id}").terminate()
    assert not await custody.is_wanted(running.session_id, 0)
    assert not await custody.is_wanted(new_session_id(), 0)


async def test_what_should_be_here_and_is_not_is_missing_until_it_has_ended(
    dev_fleet: Fleet, running: SessionSpec
) -> None:
    custody = await custody_of(dev_fleet)
    kernel = (running.session_id, 0)

    async def is_missed() -> None:
        assert kernel in await custody.missing([])

    await eventually(is_missed, timeout=10)
    assert kernel not in await custody.missing([kernel])
    assert kernel not in await (await custody_of(dev_fleet, "a2")).missing([])
    await dev_fleet.exit(running)

    async def is_not_missed() -> None:
        assert kernel not in await custody.missing([])

    await eventually(is_not_missed, timeout=10)


async def test_another_temporal_costs_no_container_its_life(dev_fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """The containers were started for a fleet that this Temporal knows nothing of: all of them would look like orphans."""
    stranger = Custody(dev_fleet.client, "a1", "the-id-of-another-namespace")

    class Untouched:
        async def list_ours(self) -> list[object]:
            raise AssertionError("looked for containers to remove")

    await stranger.sweep(Untouched())  # type: ignore[arg-type]
    assert "no container is touched" in caplog.text
