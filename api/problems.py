"""Errors as RFC 9457 problem documents: the one mapping from errors to HTTP."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from temporalio.service import RPCError

from towline.errors import (
    ConflictError,
    FieldProblem,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    QuotaError,
    TowlineError,
    UnauthenticatedError,
    UnavailableError,
)

MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final[tuple[tuple[type[TowlineError], HTTPStatus], ...]] = (
    (InvalidInputError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (ForbiddenError, HTTPStatus.FORBIDDEN),
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED),
    (ConflictError, HTTPStatus.CONFLICT),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class FieldError(BaseModel):
    """One refused field, by its dotted path, and why."""

    field: str
    problem: str


class Problem(BaseModel):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    reason: str
    retryable: bool = False
    errors: list[FieldError] | None = None


_SENTENCES: Final = {
    "extra_forbidden": "there is no such field",
    "model_attributes_type": "give a JSON object",
    "missing": "it is required",
}
"""Where Pydantic's words speak of Python."""

RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": Problem, "description": "Refused; nothing was changed.", "content": {MEDIA_TYPE: {}}},
    "5XX": {"model": Problem, "description": "Failed on our side.", "content": {MEDIA_TYPE: {}}},
}


def problem_response(
    status: HTTPStatus,
    detail: str,
    *,
    reason: str,
    retryable: bool = False,
    fields: tuple[FieldProblem, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem document as a response."""
    problem = Problem(
        type=f"urn:towline:problem:{reason}",
        title=status.phrase,
        status=status,
        detail=detail,
        reason=reason,
        retryable=retryable,
        errors=[FieldError(field=found.field, problem=found.problem) for found in fields] or None,
    )
    content = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Let every error leave the application as a problem document."""
    app.add_exception_handler(TowlineError, _towline_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    for unavailable in (OperationalError, InterfaceError, PoolTimeoutError, RPCError):
        app.add_exception_handler(unavailable, _service_error)
    app.add_exception_handler(DBAPIError, _database_error)


async def _towline_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TowlineError)
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), HTTPStatus.BAD_GATEWAY)
    fields = error.fields if isinstance(error, InvalidInputError | QuotaError) else ()
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    return problem_response(
        status, error.message, reason=error.code, retryable=error.retryable, fields=fields, headers=headers
    )


async def _validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(problem["type"] == "json_invalid" for problem in found):
        return problem_response(HTTPStatus.BAD_REQUEST, "the body is not JSON", reason="invalid-json")
    if any(problem["type"] == "model_attributes_type" and isinstance(problem["input"], bytes) for problem in found):
        detail = "the body is not said to be JSON: send it with Content-Type: application/json"
        return problem_response(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, reason="unsupported-media-type")
    fields = tuple(
        FieldProblem(field=_dotted(problem["loc"]) or "body", problem=_sentence(problem)) for problem in found
    )
    detail = "; ".join(f"{problem.field}: {problem.problem}" for problem in fields[:5])
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, detail, reason="invalid-input", fields=fields)


async def _http_exception(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    reason = status.phrase.lower().replace(" ", "-")
    return problem_response(status, str(error.detail), reason=reason, headers=error.headers)


async def _service_error(_: Request, error: Exception) -> JSONResponse:
    service = "Temporal" if isinstance(error, RPCError) else "Postgres"
    return problem_response(
        HTTPStatus.SERVICE_UNAVAILABLE, f"{service} does not answer now", reason="unavailable", retryable=True
    )


async def _database_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DBAPIError)
    if error.connection_invalidated:
        return await _service_error(request, error)
    raise error


def _dotted(location: tuple[int | str, ...]) -> str:
    parts = location[1:] if location and location[0] in ("body", "query", "path", "header") else location
    return ".".join(part.encode("utf-8", "replace").decode() if isinstance(part, str) else str(part) for part in parts)


def _sentence(problem: Mapping[str, Any]) -> str:
    text = str(problem["msg"]).removeprefix("Value error, ")
    return _SENTENCES.get(str(problem["type"]), text)
