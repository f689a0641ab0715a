"""What people see in Temporal's UI while a session pulls: it reads the same answers as these."""

from datetime import timedelta

import pytest
from temporalio.client import Client

from activities.payloads import data_converter
from tests.acceptance.stack import RunningStack
from tests.rig.eventually import eventually
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, push
from tests.rig.registry import RegistryProcess
from towline.domain.progress import PullProgress
from towline.domain.queues import session_workflow_id

pytestmark = pytest.mark.usefixtures("no_leftovers")
METADATA = "__temporal_workflow_metadata"


async def found_by(client: Client, query: str) -> set[str]:
    """Ids of the workflows that the query lists."""
    return {found.id async for found in client.list_workflows(query)}


async def test_a_pulling_session_can_be_found_and_looked_into(stack: RunningStack, registry: RegistryProcess) -> None:
    client = await Client.connect(stack.temporal, data_converter=data_converter)
    layers = (Layer.busybox(), Layer.random(mb=9, seed=610), Layer.random(mb=5, seed=611))
    pushed = push(registry.host, "acceptance/view", "1", ImageRecipe(layers=layers, cmd=("sleep", "60")))
    with FaultRegistry(registry.host) as slow:
        slow.on(Throttle(total_bytes_per_second=1_000_000), path="*/blobs/*")
        image = pushed.reference.replace(registry.host, slow.host)
        session = stack.create(image)
        stack.reaches(session, "PULLING")
        workflow_id = session_workflow_id(session["id"])
        handle = client.get_workflow_handle(workflow_id)

        async def listed() -> None:
            for clause in (f'TowlineImage="{image}"', 'TowlineOwner="admin"', 'TowlineAgents="local"'):
                assert workflow_id in await found_by(client, f'TowlineStatus="PULLING" AND {clause}')

        await eventually(listed, timeout=10)

        async def progressed() -> PullProgress:
            described = await handle.describe(rpc_timeout=timedelta(seconds=5))
            [pending] = described.raw_description.pending_activities
            assert pending.activity_type.name == "check_and_pull"
            [progress] = await client.data_converter.decode(pending.heartbeat_details.payloads, [PullProgress])
            assert isinstance(progress, PullProgress)
            assert progress.bytes_done > 0
            assert progress.rate_bytes_per_s
            return progress

        progress = await eventually(progressed, timeout=20)
        assert (progress.layers.total, progress.bytes_total) == (3, pushed.layer_bytes - progress.bytes_present)
        assert await handle.describe() is not None
        description = await handle.describe()
        assert image in str(await description.static_summary())
        metadata = await handle.query(METADATA)
        assert "PULLING" in str(metadata)
        stack.cancel(session, force=True)
    assert stack.ended(session)["status"] == "CANCELLED"
