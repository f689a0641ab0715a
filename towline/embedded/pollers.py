"""Whether a worker is there: it polls its task queue."""

from datetime import UTC, datetime

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

    async def on(self, queue: str, since: datetime) -> bool:
        """Whether somebody has polled the queue for activities since then (Temporal remembers the dead for minutes)."""
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
        return any(poller.last_access_time.ToDatetime(UTC) > since for poller in described.pollers)


class Polled:
    """Readiness of a worker that is started again and again: it has polled since its last start."""

    def __init__(self, pollers: Pollers, queue: str) -> None:
        self._pollers = pollers
        self._queue = queue
        self._since = datetime.now(UTC)

    def starts(self) -> None:
        """The worker is about to be started."""
        self._since = datetime.now(UTC)

    async def is_ready(self) -> bool:
        """Whether it has polled."""
        return await self._pollers.on(self._queue, self._since)
