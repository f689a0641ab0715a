"""The control worker: workflows and records."""

from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner

from activities.records import RecordActivities, Records
from towline.domain.queues import CONTROL_QUEUE
from workflows.agent import Agent
from workflows.kernel_start import KernelStart
from workflows.session import Session

_STICKY_TIMEOUT: Final = timedelta(seconds=2)
"""After a control worker's death its cached workflows stall for this long, and not for the default of 10 s."""

_MAX_CACHED_WORKFLOWS: Final = 5000

_RUNNER: Final = UnsandboxedWorkflowRunner()
"""The sandbox finds what does not belong into a workflow. That is for the tests, which run in it: it would cost each start
some 60 ms of this process's time."""


def control_worker(client: Client, records: Records, *, runner: WorkflowRunner = _RUNNER) -> Worker:
    """The worker that runs every workflow."""
    activities = RecordActivities(records)
    return Worker(
        client,
        task_queue=CONTROL_QUEUE,
        workflows=[Session, KernelStart, Agent],
        activities=[
            activities.place,
            activities.admit,
            activities.record,
            activities.finish,
            activities.record_agent,
        ],
        workflow_runner=runner,
        max_cached_workflows=_MAX_CACHED_WORKFLOWS,
        sticky_queue_schedule_to_start_timeout=_STICKY_TIMEOUT,
        graceful_shutdown_timeout=timedelta(seconds=5),
    )
