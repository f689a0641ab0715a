"""Quotas, as they are set and shown."""

from typing import Annotated

from pydantic import BaseModel, Field, StrictInt

from api.schemas.answers import Answer
from api.schemas.fields import Size
from api.schemas.requests import Body, Seconds
from towline.domain.quotas import Account, Quota

_Count = Annotated[StrictInt, Field(ge=0, le=1_000_000)]


class QuotaBody(Body):
    """Limits; what is left out is not limited. `sessions`, `cpu`, `memory` and `gpu`: of all that is being created, runs or
    ends at one time; `pending`: sessions that are not so far; `kernels`, `lifetime` (seconds) and `priority`: of each session.
    """

    sessions: _Count | None = None
    cpu: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = None
    memory: Size | None = None
    gpu: _Count | None = None
    pending: _Count | None = None
    kernels: _Count | None = None
    lifetime: Seconds | None = None
    priority: Annotated[StrictInt, Field(ge=0, le=100)] | None = None

    def quota(self) -> Quota:
        """As the records keep it."""
        return Quota(
            sessions=self.sessions,
            cpu=self.cpu,
            memory_bytes=self.memory,
            gpu=self.gpu,
            pending=self.pending,
            kernels=self.kernels,
            lifetime_seconds=self.lifetime,
            priority=self.priority,
        )


class LimitsAnswer(Answer):
    """The limits of a quota; `null` is none. Memory in bytes, lifetime in seconds."""

    sessions: int | None
    cpu: float | None
    memory_bytes: int | None
    gpu: int | None
    pending: int | None
    kernels: int | None
    lifetime: Annotated[float | None, Field(validation_alias="lifetime_seconds")]
    priority: int | None


class UsageAnswer(Answer):
    """What is used of a quota."""

    sessions: int
    cpu: float
    memory_bytes: int
    gpu: int


class QuotaAnswer(Answer):
    """The quota of a `user` (`*`: of every user without one of their own) or of a `project`. `pending`: sessions that are
    not being created yet."""

    kind: str
    name: str
    limits: LimitsAnswer
    used: UsageAnswer
    pending: int


class QuotaList(BaseModel):
    """Quotas."""

    quotas: list[QuotaAnswer]


def quota_answer(account: Account) -> QuotaAnswer:
    """A quota as it is sent."""
    return QuotaAnswer(
        kind=account.subject.kind,
        name=account.subject.name,
        limits=LimitsAnswer.model_validate(account.quota),
        used=UsageAnswer.model_validate(account.used),
        pending=account.pending,
    )
