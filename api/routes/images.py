"""Images on agents: check-and-pull in the background."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from api.dependencies import TheCaller, TheParts, TheSuperadmin
from api.problems import RESPONSES
from api.schemas.answers import TaskAnswer, TasksStarted
from api.schemas.requests import CheckAndPullBody
from towline.domain.images import ImageRef
from towline.domain.sessions import PullPolicy
from towline.errors import FieldProblem, InvalidInputError
from towline.store.agents import list_agents

router = APIRouter(prefix="/v1", tags=["images"], responses=RESPONSES)
TaskId = Annotated[str, Field(max_length=300)]


@router.post("/images/check-and-pull", status_code=202)
async def check_and_pull(body: CheckAndPullBody, parts: TheParts, _: TheSuperadmin) -> TasksStarted:
    """Bring an image to agents that do not have it. Answers task ids at once; asking again joins what is running."""
    async with parts.database.transaction() as tx:
        known = {agent.id for agent in await list_agents(tx)}
    unknown = tuple(
        FieldProblem(field=f"agents.{index}", problem=f"there is no agent {agent_id}")
        for index, agent_id in enumerate(body.agents)
        if agent_id not in known
    )
    if unknown:
        raise InvalidInputError("some agents do not exist", fields=unknown)
    ids = await parts.tasks.start(body.agents, ImageRef.parse(body.image), PullPolicy(body.policy))
    return TasksStarted(task_ids=ids)


@router.get("/tasks/{task_id:path}")
async def task(task_id: TaskId, parts: TheParts, _: TheCaller) -> TaskAnswer:
    """A task as it is now: started, with its progress; finished, with the image; or failed, with the reason."""
    return TaskAnswer.model_validate(await parts.tasks.get(task_id))
