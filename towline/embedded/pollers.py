"""Whether a worker is there: it polls its task queue."""

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError


class Pollers:
    """Asks Temporal who polls. Connects when it is first asked."""

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._client: Client | None = None

    async def on(self, queue: str) -> bool:
        """Whether somebody has polled the queue for activities in the last minutes."""
        if self._client is None:
            self._client = await Client.connect(self._address, namespace=self._namespace)
        request = DescribeTaskQueueRequest(
            namespace=self._namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        try:
            described = await self._client.workflow_service.describe_task_queue(request)
        except RPCError:
            return False
        return bool(described.pollers)
