"""Check-and-pull tasks in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from api.tasks import Task, TaskStatus
from towline.domain.images import ImageRef
from towline.domain.sessions import PullPolicy
from towline.errors import NotFoundError


@dataclass(kw_only=True)
class FakeTasks:
    """Satisfies `api.tasks.Tasks`. What was asked for stays started until a test says otherwise."""

    tasks: dict[str, Task] = field(default_factory=dict)

    async def start(self, agents: Sequence[str], ref: ImageRef, policy: PullPolicy) -> list[str]:
        ids = [f"pull/{agent_id}/{ref.repository}-{policy}" for agent_id in agents]
        for task_id in ids:
            self.tasks.setdefault(task_id, Task(task_id=task_id, status=TaskStatus.STARTED, started_at=None))
        return ids

    async def get(self, task_id: str) -> Task:
        if task_id not in self.tasks:
            raise NotFoundError(f"there is no task {task_id!r}")
        return self.tasks[task_id]
