"""Speaking to the API: plain JSON in and out, problem documents as errors, streams that survive a restart of the API."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from httpx_sse import EventSource
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from towline.cli.connection import Connection, find_connection
from towline.cli.output import harmless
from towline.domain.lifecycle import FINAL
from towline.errors import FieldProblem, InvalidInputError, TowlineError, UnavailableError

_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
_STREAM_TIMEOUT: Final = httpx.Timeout(60.0, connect=5.0)
"""The API sends a sign of life on every event stream each 15 s."""

_LOG_TIMEOUT: Final = httpx.Timeout(None, connect=5.0)
"""A silent command is no broken connection."""

_PATIENCE_SECONDS: Final = 60.0
"""How long a client that has reached the API before waits for it to come back."""

_ATTEMPTS_MAX: Final = 33
"""Of a single request: with the waits between them that is the same time."""

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_REFUSED_INPUT: Final = (400, 409, 413, 422)

T = TypeVar("T")


class RefusedError(TowlineError):
    """The API said no, and trying again will not help."""

    code = "refused"


class LostAnswerError(UnavailableError):
    """The request may have been carried out; its answer did not arrive."""


@dataclass(frozen=True, kw_only=True)
class StreamEvent:
    """One server-sent event. `data` is the event, or the pull's progress."""

    kind: str
    data: dict[str, Any]


class Client:
    """The API, as one caller. `sleep` and `clock` (monotonic seconds) are for tests."""

    def __init__(
        self,
        connection: Connection | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        found = connection or find_connection()
        self.api_url: Final = found.api_url
        self.sleep: Final = sleep
        self._clock = clock
        self._has_answered = False
        try:
            url = urlsplit(found.api_url)
            self._http = httpx.Client(
                base_url=found.api_url,
                headers={"Authorization": f"Bearer {found.token}"} if found.token else {},
                timeout=_TIMEOUT,
                # A proxy that the environment names cannot reach a server on this machine.
                trust_env=url.hostname not in _LOOPBACK,
                # Reading the machine's certificates takes longer than most requests: only where they are needed.
                verify=url.scheme == "https",
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidInputError(f"TOWLINE_API_URL or TOWLINE_TOKEN cannot be used: {error}") from error

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One request; its JSON answer, None for an empty one.

        Raises `UnavailableError` where there is no server, `LostAnswerError` when it went away in between,
        `InvalidInputError` and `RefusedError` with the server's words.
        """
        try:
            response = self._http.request(method, path, json=body, params=params, headers=headers)
        except httpx.TransportError as error:
            raise self._failure(error) from error
        if not response.is_success:
            _raise_problem(response)
        self._has_answered = True
        return response.json() if response.content else None

    def ask_patiently(self, method: str, path: str, **request: Any) -> Any:
        """As `ask`, for requests that may be repeated: once the API has answered anything, waits while it restarts."""
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, UnavailableError) and self._has_answered),
            wait=wait_exponential(multiplier=0.2, max=2.0),
            stop=stop_after_attempt(_ATTEMPTS_MAX),
            sleep=self.sleep,
            reraise=True,
        )
        return retrying(self.ask, method, path, **request)

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A new session: exactly one, also when the first answer is lost."""
        request = {"body": body, "headers": {"Idempotency-Key": uuid.uuid4().hex}}
        try:
            made: dict[str, Any] = self.ask("POST", "/v1/sessions", **request)
        except LostAnswerError:
            self._has_answered = True
            made = self.ask_patiently("POST", "/v1/sessions", **request)
        return made

    def session(self, session_id: str) -> dict[str, Any]:
        """A session as it is now."""
        found: dict[str, Any] = self.ask_patiently("GET", session_path(session_id))
        return found

    def events(self, session_id: str, *, after: int = 0) -> Iterator[StreamEvent]:
        """A session's events until it has ended, live. When the connection breaks, goes on after the last one seen."""
        seen, over = after, False

        def once() -> Iterator[StreamEvent]:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(seen)}
            with self._stream(f"{session_path(session_id)}/events", _STREAM_TIMEOUT, headers=headers) as response:
                for event in EventSource(response).iter_sse():
                    if event.data:  # A sign of life comes as an event without data.
                        yield StreamEvent(kind=event.event, data=json.loads(event.data))
            # An API that stops in good order ends its streams in good order, too.
            if not over and self.session(session_id)["status"] not in FINAL:
                raise LostAnswerError("the API has ended the stream before the session's end")

        for event in self._resumed(once):
            seen = max(seen, event.data.get("seq", 0))
            over = over or event.data.get("session_status") in FINAL
            yield event

    def pulls(self, *, seconds: float | None = None) -> Iterator[StreamEvent]:
        """The pulls in flight, live, for so long: `pulls` (all, at the beginning and after a broken connection), `progress`
        and `ended` (one each)."""
        until = None if seconds is None else self._clock() + seconds

        def once() -> Iterator[StreamEvent]:
            left = None if until is None else max(0.0, until - self._clock())
            timeout = _STREAM_TIMEOUT if left is None else httpx.Timeout(min(60.0, left + 0.1), connect=5.0)
            try:
                with self._stream("/v1/pulls", timeout, headers={"Accept": "text/event-stream"}) as response:
                    for event in EventSource(response).iter_sse():
                        if event.data:
                            yield StreamEvent(kind=event.event, data=json.loads(event.data))
            except LostAnswerError:
                if until is None or self._clock() < until:
                    raise
                return
            raise LostAnswerError("the API has ended the stream of pulls")

        for event in self._resumed(once):
            if until is not None and self._clock() >= until:
                return
            yield event

    def logs(self, session_id: str, *, kernel: int = 0, tail: int | None = None, follow: bool = False) -> Iterator[str]:
        """A kernel's log as text. `follow`: until the kernel has ended; a broken connection is taken up where it broke."""
        params: dict[str, Any] = {"kernel": kernel, "follow": follow} | ({} if tail is None else {"tail": tail})
        seen = 0

        def once() -> Iterator[str]:
            skip = seen
            with self._stream(f"{session_path(session_id)}/logs", _LOG_TIMEOUT, params=params) as response:
                for text in response.iter_text():
                    fresh = text[skip:]
                    skip = max(0, skip - len(text))
                    yield fresh

        for text in self._resumed(once) if follow else once():
            seen += len(text)
            yield text

    def _resumed(self, once: Callable[[], Iterator[T]]) -> Iterator[T]:
        """What `once` yields, begun again whenever the API goes away, until it ends by itself."""
        broken_at: float | None = None
        while True:
            try:
                for item in once():
                    broken_at = None
                    yield item
            except UnavailableError:
                broken_at = self._clock() if broken_at is None else broken_at
                if not self._has_answered or self._clock() - broken_at > _PATIENCE_SECONDS:
                    raise
                self.sleep(1.0)
            else:
                return

    @contextmanager
    def _stream(self, path: str, timeout: httpx.Timeout, **request: Any) -> Iterator[httpx.Response]:
        """A response that is read while it comes. Failures are those of `ask`."""
        try:
            with self._http.stream("GET", path, timeout=timeout, **request) as response:
                if not response.is_success:
                    response.read()
                    _raise_problem(response)
                self._has_answered = True
                yield response
        except httpx.TransportError as error:
            raise self._failure(error) from error

    def _failure(self, error: httpx.TransportError) -> UnavailableError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
            return UnavailableError(
                f"no Towline server answers at {self.api_url} ({error}). Start one with `towline up`, "
                "or name another with TOWLINE_API_URL"
            )
        return LostAnswerError(f"the server at {self.api_url} went away: {error or type(error).__name__}")


def session_path(session_id: str) -> str:
    """Where a session is, whatever was typed as its id."""
    return f"/v1/sessions/{quote(session_id, safe='')}"


def _raise_problem(response: httpx.Response) -> NoReturn:
    try:
        problem = response.json()
        detail = harmless(problem.get("detail") or problem.get("title") or response.reason_phrase)
    except (ValueError, AttributeError):
        raise RefusedError(f"the server answered {response.status_code} {response.reason_phrase}") from None
    fields = tuple(
        FieldProblem(field=harmless(one["field"]), problem=harmless(one["problem"]))
        for one in problem.get("errors") or ()
    )
    if response.status_code in _REFUSED_INPUT:
        raise refused(*fields) if fields else InvalidInputError(f"refused: {detail}")
    if response.status_code == 401:
        detail += "; set TOWLINE_TOKEN, or use the machine on which `towline up` runs"
    raise UnavailableError(detail) if problem.get("retryable") else RefusedError(detail)


def refused(*fields: FieldProblem) -> InvalidInputError:
    """Refused input, field by field."""
    lines = [f"  {found.field}: {found.problem}" for found in fields]
    return InvalidInputError("\n".join(["refused:", *lines]), fields=fields)
