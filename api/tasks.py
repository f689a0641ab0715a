"""Check-and-pull on its own: a standalone activity per agent and image, in the background, with an id at once."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from temporalio.client import (
    ActivityExecutionDescription,
    ActivityExecutionStatus,
    ActivityFailureError,
    ActivityHandle,
    Client,
)
from temporalio.common import ActivityIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.failures import Failure, failure_of
from towline.domain.images import ImageRef
from towline.domain.progress import PullProgress
from towline.domain.pulling import CheckAndPull, PulledImage
from towline.domain.queues import ActivityName, pull_queue
from towline.domain.sessions import PullPolicy
from towline.errors import NotFoundError, UnavailableError
from workflows import options

_PREFIX: Final = "pull"


class TaskStatus(StrEnum):
    """Where a task is. `started` means that it has been asked for; its agent may still be busy or away."""

    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A check-and-pull as it is now. `image` is set once finished, `failure` once failed, `progress` while it pulls."""

    task_id: str
    status: TaskStatus
    started_at: datetime | None
    ended_at: datetime | None = None
    attempt: int = 1
    progress: PullProgress | None = None
    image: PulledImage | None = None
    failure: Failure | None = None


class Tasks(Protocol):
    """Tasks. Each call raises `UnavailableError` when Temporal does not answer."""

    async def start(self, agents: Sequence[str], ref: ImageRef, policy: PullPolicy) -> list[str]:
        """Begin on every agent, or join what is running there; the tasks' ids in the agents' order."""
        ...

    async def get(self, task_id: str) -> Task:
        """One task. Raises `NotFoundError`."""
        ...


class TemporalTasks:
    """Satisfies `Tasks`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start(self, agents: Sequence[str], ref: ImageRef, policy: PullPolicy) -> list[str]:
        """The id is made from agent, image and policy: asking again joins the task that is running."""
        task_ids = []
        for agent_id in agents:
            wanted = hashlib.sha256(f"{ref} {policy}".encode()).hexdigest()[:16]
            task_id = f"{_PREFIX}/{agent_id}/{wanted}"
            request = CheckAndPull(waiter=task_id, image=str(ref), policy=policy)
            try:
                await self._client.start_activity(
                    ActivityName.CHECK_AND_PULL,
                    request,
                    id=task_id,
                    task_queue=pull_queue(agent_id),
                    result_type=PulledImage,
                    id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
                    summary=ref.familiar[:200],
                    **options.TASK,
                )
            except (RPCError, RuntimeError) as error:
                raise UnavailableError(f"Temporal does not answer now: {error}") from error
            task_ids.append(task_id)
        return task_ids

    async def get(self, task_id: str) -> Task:
        """Describe the activity; its result or failure once it has ended."""
        if not task_id.startswith(f"{_PREFIX}/"):
            raise NotFoundError(f"there is no task {task_id[:200]!r}")
        handle = self._client.get_activity_handle(task_id, result_type=PulledImage)
        try:
            return await _now(handle)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise NotFoundError(f"there is no task {task_id[:200]!r}") from error
            raise UnavailableError(f"Temporal does not answer now: {error}") from error


async def _now(handle: ActivityHandle[PulledImage]) -> Task:
    found = await handle.describe(include_heartbeat_details=True, include_last_failure=True)
    if found.status is ActivityExecutionStatus.RUNNING:
        return _task(found, TaskStatus.STARTED, progress=await _progress(found))
    try:
        return _task(found, TaskStatus.FINISHED, image=await handle.result())
    except ActivityFailureError as error:
        cancelled = found.status is ActivityExecutionStatus.CANCELED
        status = TaskStatus.CANCELLED if cancelled else TaskStatus.FAILED
        return _task(found, status, failure=failure_of(error.cause))


def _task(
    found: ActivityExecutionDescription,
    status: TaskStatus,
    *,
    progress: PullProgress | None = None,
    image: PulledImage | None = None,
    failure: Failure | None = None,
) -> Task:
    return Task(
        task_id=found.activity_id,
        status=status,
        started_at=found.schedule_time,
        ended_at=found.close_time,
        attempt=found.attempt,
        progress=progress,
        image=image,
        failure=failure,
    )


async def _progress(found: ActivityExecutionDescription) -> PullProgress | None:
    details = await found.heartbeat_details([PullProgress])
    return details[0] if details else None
