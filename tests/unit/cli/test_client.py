"""What the client does when the API refuses, is away, or goes away."""

import itertools
from collections.abc import Callable

import pytest

from tests.unit.cli.fake_api import BREAK, FakeApi
from tests.unit.cli.values import EVENTS, LOGS, SESSION, problem, session, step
from towline.cli.client import Client, LostAnswerError, RefusedError
from towline.cli.connection import Connection
from towline.errors import InvalidInputError, TowlineError, UnavailableError

NOBODY = "http://127.0.0.1:1"


class Clock:
    """Time that passes only in sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(api: FakeApi, clock: Clock) -> Client:
    return Client(Connection(api_url=api.url, token="t"), sleep=clock.sleep, clock=clock)


def test_the_token_is_sent(api: FakeApi, client: Client) -> None:
    api.answer("GET", "/v1/me", {"name": "ann"})
    assert client.ask("GET", "/v1/me") == {"name": "ann"}
    assert api.requests[0].headers["Authorization"] == "Bearer t"


def test_an_empty_answer_is_none(api: FakeApi, client: Client) -> None:
    api.answer("DELETE", "/v1/tokens/t1")
    assert client.ask("DELETE", "/v1/tokens/t1") is None


@pytest.mark.parametrize("url", [NOBODY, "nonsense"])
def test_no_server_says_how_to_start_one(url: str, clock: Clock) -> None:
    client = Client(Connection(api_url=url, token=None), sleep=clock.sleep, clock=clock)
    calls: list[Callable[[], object]] = [
        lambda: client.ask("GET", "/v1/me"),
        lambda: client.ask_patiently("GET", "/v1/me"),
        lambda: client.create({}),
        lambda: list(client.events(SESSION)),
        lambda: list(client.logs(SESSION, follow=True)),
    ]
    for call in calls:
        with pytest.raises(UnavailableError, match="towline up"):
            call()
    assert clock.now == 0  # Nobody waits for a server that was never there.


@pytest.mark.parametrize(("url", "token"), [("http://[::", "t"), (NOBODY, "ä")])
def test_unusable_settings_are_refused(url: str, token: str) -> None:
    with pytest.raises(InvalidInputError, match="TOWLINE_"):
        Client(Connection(api_url=url, token=token))


@pytest.mark.parametrize(
    ("status", "retryable", "kind"),
    [
        (400, False, InvalidInputError),
        (401, False, RefusedError),
        (403, False, RefusedError),
        (404, False, RefusedError),
        (409, False, InvalidInputError),
        (413, False, InvalidInputError),
        (422, False, InvalidInputError),
        (500, False, RefusedError),
        (503, True, UnavailableError),
    ],
)
def test_a_problem_becomes_an_error(
    api: FakeApi, client: Client, status: int, retryable: bool, kind: type[TowlineError]
) -> None:
    api.answer("GET", "/v1/me", problem("no, because", retryable=retryable), status=status)
    with pytest.raises(kind, match="no, because") as raised:
        client.ask("GET", "/v1/me")
    assert type(raised.value) is kind
    assert ("TOWLINE_TOKEN" in raised.value.message) == (status == 401)


def test_every_refused_field_is_told_and_harmless(api: FakeApi, client: Client) -> None:
    errors = [{"field": "image", "problem": "no \x1b[2J"}, {"field": "env", "problem": "too large"}]
    api.answer("POST", "/v1/sessions", problem("no", errors=errors), status=422)
    with pytest.raises(InvalidInputError) as raised:
        client.create({})
    assert raised.value.message == "refused:\n  image: no �[2J\n  env: too large"
    assert [found.field for found in raised.value.fields] == ["image", "env"]


def test_an_answer_that_is_no_document_is_still_an_error(api: FakeApi, client: Client) -> None:
    api.answer("GET", "/v1/me", [], status=502)
    with pytest.raises(RefusedError, match="502"):
        client.ask("GET", "/v1/me")


def test_a_lost_answer_makes_one_session(api: FakeApi, client: Client) -> None:
    api.lose("POST", "/v1/sessions")
    api.lose("POST", "/v1/sessions")
    api.answer("POST", "/v1/sessions", session("PENDING"))
    assert client.create({"image": "x"})["id"] == SESSION
    keys = {request.headers["Idempotency-Key"] for request in api.asked("POST", "/v1/sessions")}
    assert len(keys) == 1
    assert len(api.requests) == 3


def test_a_server_that_stays_away_is_given_up(api: FakeApi, client: Client, clock: Clock) -> None:
    api.answer("GET", "/v1/me", {})
    api.lose("GET", "/v1/me")
    client.ask("GET", "/v1/me")
    with pytest.raises(LostAnswerError):
        client.ask_patiently("GET", "/v1/me")
    assert len(api.requests) > 10


def test_events_go_on_after_the_last_one_seen(api: FakeApi, client: Client, clock: Clock) -> None:
    api.stream(EVENTS, step(1, "SCHEDULED"), step(2, "PREPARING"), BREAK)
    api.answer("GET", EVENTS, problem("Postgres does not answer now", retryable=True), status=503)
    api.lose("GET", EVENTS)
    api.stream(EVENTS, step(3, "RUNNING"), step(4, "TERMINATED"))
    assert [event.data["seq"] for event in client.events(SESSION)] == [1, 2, 3, 4]
    assert [request.headers["Last-Event-ID"] for request in api.asked("GET", EVENTS)] == ["0", "2", "2", "2"]
    assert clock.now == 3


def test_signs_of_life_are_no_events(api: FakeApi, client: Client) -> None:
    ping = b": ping - 2026-01-01 00:00:00\r\n\r\n"
    api.stream(EVENTS, ping, step(1, "RUNNING"), ping, ping, step(2, "TERMINATED"))
    assert [event.data["seq"] for event in client.events(SESSION)] == [1, 2]


def test_a_stream_that_the_api_ends_early_is_taken_up_again(api: FakeApi, client: Client) -> None:
    api.stream(EVENTS, step(1, "RUNNING"))
    api.answer("GET", f"/v1/sessions/{SESSION}", session("RUNNING", None))
    api.stream(EVENTS, step(2, "TERMINATED"))
    assert [event.data["seq"] for event in client.events(SESSION)] == [1, 2]


def test_a_session_that_has_ended_has_no_more_events(api: FakeApi, client: Client) -> None:
    api.stream(EVENTS)
    api.answer("GET", f"/v1/sessions/{SESSION}", session())
    assert list(client.events(SESSION, after=9)) == []
    assert len(api.asked("GET", EVENTS)) == 1


def test_events_are_given_up_after_a_minute_of_silence(api: FakeApi, client: Client, clock: Clock) -> None:
    api.stream(EVENTS, step(1, "RUNNING"), BREAK)
    api.lose("GET", EVENTS)
    found = client.events(SESSION)
    assert next(found).data["seq"] == 1
    with pytest.raises(LostAnswerError):
        list(found)
    assert 60 < clock.now < 63


def test_a_session_that_is_not_there_is_no_stream(api: FakeApi, client: Client) -> None:
    with pytest.raises(RefusedError, match="not faked"):
        list(client.events(SESSION))


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_broken_log_is_taken_up_to_the_character(api: FakeApi, client: Client, cut: int) -> None:
    whole = "line ä\nline ö\n".encode()
    api.stream(LOGS, whole[:cut], BREAK, kind="text/plain; charset=utf-8")
    api.stream(LOGS, whole[:3], whole[3:], kind="text/plain; charset=utf-8")
    assert "".join(client.logs(SESSION, follow=True)) == whole.decode()


def test_a_log_that_is_not_followed_fails_as_it_is(api: FakeApi, client: Client) -> None:
    api.stream(LOGS, b"one\n", BREAK, kind="text/plain")
    found = client.logs(SESSION, kernel=2, tail=5)
    assert next(found) == "one\n"
    with pytest.raises(LostAnswerError):
        next(found)
    assert api.requests[0].query == {"kernel": ["2"], "follow": ["false"], "tail": ["5"]}


def test_whatever_is_typed_as_an_id_stays_one_part_of_the_path(api: FakeApi, client: Client) -> None:
    with pytest.raises(RefusedError):
        list(itertools.chain(client.events("../users?x#y")))
    assert api.requests[0].path == "/v1/sessions/..%2Fusers%3Fx%23y/events"
