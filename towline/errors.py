"""The exceptions of Towline. Each carries a code, says whether trying again can help, and has a sentence for people.

TowlineError
├── InvalidInputError        refused before anything is stored or started; names the fields
├── NotFoundError            no such session, kernel, pull, agent (or not the caller's to see)
├── ForbiddenError           the caller is known and may not do this
│   └── QuotaError           more than the caller may have; names the limits
├── UnauthenticatedError     no token, or one that is not valid
├── ConflictError            same idempotency key with another body; a status that forbids the act
├── UnavailableError         a service that is needed does not answer (Temporal, Postgres)
└── EngineError              the Docker Engine or a registry said no
    ├── PullError            a pull failed, with the reason that a session shows
    └── ContainerError       create, start, stop or remove failed
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from towline.domain.lifecycle import Reason
from towline.domain.pulling import PullReport
from towline.domain.quotas import Violation


@dataclass(frozen=True, kw_only=True)
class FieldProblem:
    """One refused field: where (`resources.memory`) and why, in a sentence."""

    field: str
    problem: str


class TowlineError(Exception):
    """The root. `code` is for machines and stable, `message` for people; `retryable` says if trying again can help."""

    code: str = "internal"
    retryable: bool = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message: Final = message


class InvalidInputError(TowlineError):
    """Input that can never be accepted. `fields` names each refused field."""

    code = "invalid-input"

    def __init__(self, message: str, *, fields: tuple[FieldProblem, ...] = ()) -> None:
        super().__init__(message)
        self.fields: Final = fields


class NotFoundError(TowlineError):
    """The thing does not exist, or is not the caller's to see (both look the same on purpose)."""

    code = "not-found"


class ForbiddenError(TowlineError):
    """The caller is known, and this is not theirs to do."""

    code = "forbidden"


class QuotaError(ForbiddenError):
    """The caller's quotas, or their project's, do not allow it. `fields` names every limit, with its numbers."""

    code = "quota"

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__(f"more than the quota allows: {'; '.join(map(str, violations))}")
        self.fields: Final = tuple(FieldProblem(field=one.limit, problem=str(one)) for one in violations)


class UnauthenticatedError(TowlineError):
    """No bearer token, or one that is unknown, expired or revoked."""

    code = "unauthenticated"


class ConflictError(TowlineError):
    """The request contradicts what is already so."""

    code = "conflict"


class UnavailableError(TowlineError):
    """A service that is needed does not answer now."""

    code = "unavailable"
    retryable = True


class EngineError(TowlineError):
    """The Docker Engine or a registry refused or failed. `reason` is what the session will show.

    `report`: the account of the pull that failed, where there was one.
    """

    def __init__(
        self, message: str, *, reason: Reason, retryable: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.reason: Final = reason
        self.code = reason.value
        self.retryable = retryable
        self.retry_after_seconds: Final = retry_after_seconds
        self.report: PullReport | None = None


class PullError(EngineError):
    """A check or a pull of an image failed."""


class ContainerError(EngineError):
    """Creating, starting, stopping or removing a container failed."""
