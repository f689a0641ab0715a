"""Errors of the core as Temporal knows them, and back: the one mapping.

An `EngineError` becomes an `ApplicationError` whose type is the reason, with one `FailureDetails`. Anything else that an
activity raises is a fault of ours: it is logged whole and becomes the reason `internal`, not retried, so that it is seen.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import ParamSpec, TypeVar

from pydantic import TypeAdapter
from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, FailureError

from towline.domain.lifecycle import Reason
from towline.domain.pulling import PullReport
from towline.errors import EngineError

_log = logging.getLogger(__name__)
_REPORT = TypeAdapter(PullReport)
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class FailureDetails:
    """What a failure says beside its text."""

    reason: Reason
    retryable: bool
    report: PullReport | None = None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed activity or child as the session will show it."""

    reason: Reason
    message: str
    report: PullReport | None = None


def typed(run: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Let an activity raise the core's errors: they leave it as typed `ApplicationError`s."""

    @wraps(run)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await run(*args, **kwargs)
        except EngineError as error:
            raise _application_error(error) from error
        except FailureError:
            raise
        except Exception as error:
            _log.exception("an activity failed in a way that it should not")
            details = FailureDetails(reason=Reason.INTERNAL, retryable=False)
            message = f"{type(error).__name__}: {error}"
            raise ApplicationError(message, details, type=Reason.INTERNAL, non_retryable=True) from error

    return wrapper


def _application_error(error: EngineError) -> ApplicationError:
    details = FailureDetails(reason=error.reason, retryable=error.retryable, report=error.report)
    delay = timedelta(seconds=error.retry_after_seconds) if error.retry_after_seconds is not None else None
    return ApplicationError(
        error.message, details, type=error.reason, non_retryable=not error.retryable, next_retry_delay=delay
    )


def failure_of(error: BaseException) -> Failure:
    """The reason and the sentence in a failed activity or child workflow."""
    cause: BaseException | None = error
    while isinstance(cause, (ActivityError, ChildWorkflowError)):
        cause = cause.cause
    if isinstance(cause, exceptions.TimeoutError):
        return Failure(reason=Reason.AGENT_UNREACHABLE, message=f"the agent did not answer: {cause.message}")
    if isinstance(cause, ApplicationError):
        reason = next((known for known in Reason if known.value == cause.type), Reason.INTERNAL)
        return Failure(reason=reason, message=cause.message, report=_report_in(cause))
    return Failure(reason=Reason.INTERNAL, message=f"{type(error).__name__}: {error}")


def _report_in(error: ApplicationError) -> PullReport | None:
    # The details of a failure arrive as plain JSON values: nothing says there what type they had.
    for details in error.details:
        report = details.get("report") if isinstance(details, dict) else None
        if report is not None:
            return _REPORT.validate_python(report)
    return None
