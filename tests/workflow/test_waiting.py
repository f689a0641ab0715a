"""The session workflow while it waits: for room, for its time, for its quota."""

from datetime import timedelta
from functools import partial

from tests.rig.eventually import eventually
from tests.workflow.fleet import Fleet
from tests.workflow.scenarios import reaches
from tests.workflow.world import FakeRecords
from towline.domain.lifecycle import Reason, Status
from towline.domain.queues import Signal

S = Status


def _has_asked(records: FakeRecords, times: int) -> bool:
    return records.placings >= times


class TestPlacement:
    async def test_what_can_never_fit_is_refused_at_once(self, fleet: Fleet) -> None:
        fleet.world.records.never = True
        spec = fleet.spec()
        assert await fleet.result(await fleet.start(spec)) == S.ERROR
        assert fleet.world.records.finishes[spec.session_id][0].reason is Reason.CANNOT_EVER_FIT

    async def test_freed_capacity_wakes_who_waits(self, fleet: Fleet) -> None:
        fleet.world.records.capacity = 1
        first, second = fleet.spec(), fleet.spec()
        first_handle = await fleet.start(first)
        await reaches(fleet, first.session_id, S.RUNNING)
        second_handle = await fleet.start(second)

        async def waits() -> None:
            assert fleet.world.records.waiting == [second.session_id]

        await eventually(waits, timeout=10)
        await fleet.exit(first)
        await fleet.result(first_handle)
        await reaches(fleet, second.session_id, S.RUNNING)
        await fleet.exit(second)
        assert await fleet.result(second_handle) == S.TERMINATED

    async def test_before_its_time_it_asks_once_and_no_more(self, fleet: Fleet) -> None:
        spec = fleet.spec()
        fleet.world.records.starts_at = await fleet.env.get_current_time() + timedelta(hours=5)
        handle = await fleet.start(spec)
        await eventually(lambda: fleet.world.records.placings == 1, timeout=10)
        await fleet.env.sleep(timedelta(hours=5, seconds=1))
        await reaches(fleet, spec.session_id, S.RUNNING)
        assert fleet.world.records.placings == 2
        await fleet.exit(spec)
        assert await fleet.result(handle) == S.TERMINATED

    async def test_however_long_it_waits_its_history_stays_short(self, dev_fleet: Fleet) -> None:
        records = dev_fleet.world.records
        records.capacity = 0
        spec = dev_fleet.spec()
        handle = await dev_fleet.start(spec)
        first = (await handle.describe()).run_id
        for asked in range(1, 101):
            await eventually(partial(_has_asked, records, asked), timeout=10, interval=0.005)
            await handle.signal(Signal.CAPACITY_FREED)
        waiting = await handle.describe()
        assert waiting.run_id != first
        assert waiting.history_length < 400
        records.capacity = 1
        await handle.signal(Signal.CAPACITY_FREED)
        await reaches(dev_fleet, spec.session_id, S.RUNNING)
        await dev_fleet.exit(spec)
        assert await dev_fleet.result(handle) == S.TERMINATED

    async def test_a_waiting_session_can_be_cancelled(self, fleet: Fleet) -> None:
        fleet.world.records.capacity = 0
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await fleet.ask(spec, Signal.CANCEL)
        assert await fleet.result(handle) == S.CANCELLED


class TestQuota:
    async def test_over_it_a_session_waits_with_its_image_and_goes_on_when_woken(self, fleet: Fleet) -> None:
        fleet.world.records.may_run = 1
        first, second = fleet.spec(), fleet.spec()
        first_handle = await fleet.start(first)
        await reaches(fleet, first.session_id, S.RUNNING)
        second_handle = await fleet.start(second)
        await reaches(fleet, second.session_id, S.PREPARED)
        await eventually(lambda: fleet.world.records.waiting == [second.session_id], timeout=10)
        assert len(fleet.world.containers.containers) == 1
        await fleet.exit(first)
        await fleet.result(first_handle)
        await reaches(fleet, second.session_id, S.RUNNING)
        await fleet.exit(second)
        assert await fleet.result(second_handle) == S.TERMINATED
        assert fleet.world.records.path(second.session_id).count(S.CREATING) == 1

    async def test_a_session_that_waits_for_it_can_be_cancelled(self, fleet: Fleet) -> None:
        fleet.world.records.may_run = 0
        spec = fleet.spec()
        handle = await fleet.start(spec)
        await reaches(fleet, spec.session_id, S.PREPARED)
        await fleet.ask(spec, Signal.CANCEL)
        assert await fleet.result(handle) == S.CANCELLED
        assert fleet.world.containers.starts == 0
