"""Speaking to the API: plain JSON in and out, problem documents as errors, streams that survive a restart of the API."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import httpx
from httpx_sse import EventSource

from towline.cli.connection import Connection, find_connection
from towline.errors import FieldProblem, InvalidInputError, TowlineError, UnavailableError

_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
_STREAM_TIMEOUT: Final = httpx.Timeout(60.0, connect=5.0)
"""The API sends a sign of life on every event stream each 15 s."""

_RECONNECT_SECONDS: Final = 1.0
_RECONNECTS_MAX: Final = 60


class RefusedError(TowlineError):
    """The API said no, and trying again will not help."""

    code = "refused"


@dataclass(frozen=True, kw_only=True)
class StreamEvent:
    """One server-sent event."""

    kind: str
    data: dict[str, Any]


class Client:
    """The API, as one caller. `transport` is for tests."""

    def __init__(self, connection: Connection | None = None, transport: httpx.BaseTransport | None = None) -> None:
        found = connection or find_connection()
        self.api_url: Final = found.api_url
        headers = {"Authorization": f"Bearer {found.token}"} if found.token else {}
        self._http = httpx.Client(base_url=found.api_url, headers=headers, timeout=_TIMEOUT, transport=transport)

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

        Raises `UnavailableError` when there is no server, `InvalidInputError` and `RefusedError` with the server's words.
        """
        try:
            response = self._http.request(method, path, json=body, params=params, headers=headers)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            _raise_problem(response)
        return response.json() if response.content else None

    def events(self, session_id: str, *, after: int = 0) -> Iterator[StreamEvent]:
        """A session's events until it has ended, live. When the connection breaks, goes on after the last one seen."""
        failures = 0
        while True:
            try:
                for event in self._events_once(session_id, after):
                    failures = 0
                    after = max(after, event.data.get("seq", 0))
                    yield event
            except httpx.TransportError as error:
                failures += 1
                if failures > _RECONNECTS_MAX:
                    raise self._unreachable(error) from error
                time.sleep(_RECONNECT_SECONDS)
            else:
                return

    def _events_once(self, session_id: str, after: int) -> Iterator[StreamEvent]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        path = f"/v1/sessions/{session_id}/events"
        with self._http.stream("GET", path, headers=headers, timeout=_STREAM_TIMEOUT) as response:
            if not response.is_success:
                response.read()
                _raise_problem(response)
            for event in EventSource(response).iter_sse():
                yield StreamEvent(kind=event.event, data=json.loads(event.data))

    def logs(self, session_id: str, *, kernel: int = 0, tail: int | None = None, follow: bool = False) -> Iterator[str]:
        """A kernel's log as text. `follow`: until the kernel has ended; a broken connection is taken up where it broke."""
        params: dict[str, Any] = {"kernel": kernel, "follow": follow} | ({} if tail is None else {"tail": tail})
        seen, failures = 0, 0
        while True:
            skip = seen
            try:
                for text in self._logs_once(session_id, params):
                    fresh = text[min(skip, len(text)) :]
                    skip -= min(skip, len(text))
                    seen += len(fresh)
                    failures = 0
                    yield fresh
            except httpx.TransportError as error:
                failures += 1
                if not follow or failures > _RECONNECTS_MAX:
                    raise self._unreachable(error) from error
                time.sleep(_RECONNECT_SECONDS)
            else:
                return

    def _logs_once(self, session_id: str, params: Mapping[str, Any]) -> Iterator[str]:
        path = f"/v1/sessions/{session_id}/logs"
        # A silent command is no broken connection: there is no time-out for reading.
        timeout = httpx.Timeout(None, connect=5.0)
        with self._http.stream("GET", path, params=params, timeout=timeout) as response:
            if not response.is_success:
                response.read()
                _raise_problem(response)
            yield from response.iter_text()

    def _unreachable(self, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"no Towline server answers at {self.api_url} ({error}). Start one with `towline up`, "
            "or name another with TOWLINE_API_URL"
        )


def _raise_problem(response: httpx.Response) -> NoReturn:
    try:
        problem = response.json()
        detail = str(problem.get("detail") or problem.get("title") or response.reason_phrase)
    except (ValueError, AttributeError):
        raise RefusedError(f"the server answered {response.status_code} {response.reason_phrase}") from None
    fields = tuple(FieldProblem(field=one["field"], problem=one["problem"]) for one in problem.get("errors") or ())
    if response.status_code in (400, 409, 413, 422):
        lines = [f"  {found.field}: {found.problem}" for found in fields]
        raise InvalidInputError("\n".join(["refused:", *lines]) if lines else f"refused: {detail}", fields=fields)
    if response.status_code == 401:
        detail += "; set TOWLINE_TOKEN, or use the machine on which `towline up` runs"
    if problem.get("retryable"):
        raise UnavailableError(detail)
    raise RefusedError(detail)
