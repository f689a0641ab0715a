"""The commands that look and ask: tables and JSON, what is sent, exit codes."""

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Towline
from tests.unit.cli.fake_api import BREAK, HOLD, FakeApi
from tests.unit.cli.values import EVENTS, LOGS, SESSION, account, pull, session, step

SHOW = f"/v1/sessions/{SESSION}"
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e"
AGENT = {
    "id": "a1",
    "status": "ONLINE",
    "cordoned": False,
    "draining": False,
    "gpu": 0,
    "gpu_free": 0,
    "resource_group": "default",
    "events": [{"at": "2026-01-01T00:00:00Z", "kind": "cordoned", "message": "new disks", "actor": "root"}],
    "cpu": 4.0,
    "cpu_free": 3.5,
    "memory_bytes": 8_000_000_000,
    "memory_bytes_free": 7_000_000_000,
    "platform": "linux/amd64",
    "engine_version": "28.2.2",
    "store_kind": "classic",
    "seen_at": "2026-01-01T00:00:00Z",
}
USER = {"id": "u1", "name": "ann", "role": "user", "project": None, "created_at": "2026-01-01T00:00:00Z"}
QUOTA = {
    "kind": "user",
    "name": "ann",
    "limits": {
        "sessions": 3,
        "cpu": 2.5,
        "memory_bytes": 1 << 30,
        "gpu": None,
        "pending": None,
        "kernels": 4,
        "lifetime": 3600.0,
        "priority": 50,
    },
    "used": {"sessions": 1, "cpu": 0.5, "memory_bytes": 1 << 29, "gpu": 0},
    "pending": 2,
}
TOKEN = {"id": "t1", "user": "ann", "name": "laptop", "created_at": "2026-01-01T00:00:00Z", "revoked_at": None}


def test_sessions_are_listed_page_by_page(api: FakeApi, towline: Towline) -> None:
    api.answer("GET", "/v1/sessions", {"sessions": [session()] * 200, "next_cursor": "c1"})
    api.answer("GET", "/v1/sessions", {"sessions": [session("ERROR", "dns")] * 50, "next_cursor": None})
    done = towline("session", "ls", "--limit=300", "--status=ERROR", "--status=TERMINATED", "--label=a=b")
    assert done.code == 0
    lines = done.out.splitlines()
    assert len(lines) == 250
    assert lines[0].split("\t")[:5] == [SESSION, "TERMINATED", "exited", "ann", "docker.io/library/busybox:latest"]
    first, second = api.requests
    assert first.query == {"status": ["ERROR", "TERMINATED"], "label": ["a=b"], "limit": ["200"]}
    assert (second.query["cursor"], second.query["limit"]) == (["c1"], ["100"])


def test_a_session_is_shown_with_its_kernels_and_its_pull(api: FakeApi, towline: Towline) -> None:
    api.answer("GET", SHOW, session("PULLING", None, pull=pull(), exit_code=None))
    out = towline("session", "show", SESSION).out
    assert "pull\tdownloading 25.0%" in out
    assert "kernel 0\tPULLING a1" in out


@pytest.mark.parametrize(
    ("arguments", "answers"),
    [
        (["session", "ls"], {"/v1/sessions": {"sessions": [session()], "next_cursor": None}}),
        (["session", "show", SESSION], {SHOW: session()}),
        (["session", "wait", SESSION], {SHOW: session()}),
        (["session", "events", SESSION], {EVENTS: {"events": [step(1, "RUNNING")[1]]}}),
        (["agent", "ls"], {"/v1/agents": {"agents": [AGENT]}}),
        (["agent", "show", "a1"], {"/v1/agents/a1": AGENT}),
        (["pull", "ls"], {"/v1/pulls": {"pulls": [account(pull())]}}),
        (["pull", "show", "pull-1"], {"/v1/pulls/pull-1": account(pull())}),
        (["user", "ls"], {"/v1/users": {"users": [USER]}}),
        (["user", "token", "ann", "--list"], {"/v1/users/ann/tokens": {"tokens": [TOKEN]}}),
        (["quota", "ls"], {"/v1/quotas": {"quotas": [QUOTA]}}),
        (["quota", "show"], {"/v1/me/quotas": {"quotas": [QUOTA]}}),
    ],
)
def test_what_is_read_comes_as_lines_and_as_json(
    api: FakeApi, towline: Towline, arguments: list[str], answers: dict[str, Any]
) -> None:
    for path, value in answers.items():
        api.answer("GET", path, value)
    plain, as_json = towline(*arguments), towline(*arguments, "--json")
    assert (plain.code, as_json.code) == (0, 0)
    assert plain.out.strip()
    json.loads(as_json.out)


@pytest.mark.parametrize(
    ("arguments", "answers"),
    [
        (["session", "ls"], {"/v1/sessions": {"sessions": [session(owner=EVIL)], "next_cursor": None}}),
        (["session", "show", SESSION], {SHOW: session(message=EVIL, name=EVIL)}),
        (["session", "events", SESSION], {EVENTS: {"events": [step(1, "ERROR", message=EVIL)[1]]}}),
        (["agent", "ls"], {"/v1/agents": {"agents": [AGENT | {"engine_version": EVIL}]}}),
        (["agent", "show", "a1"], {"/v1/agents/a1": AGENT | {"labels": {EVIL: EVIL}}}),
        (["pull", "ls"], {"/v1/pulls": {"pulls": [account(pull(), image=EVIL)]}}),
        (
            ["pull", "show", "p"],
            {"/v1/pulls/p": account(pull(verdict="stalled", verdict_reason=EVIL))},
        ),
        (["user", "ls"], {"/v1/users": {"users": [USER | {"name": EVIL}]}}),
    ],
)
def test_what_others_wrote_does_not_command_the_terminal(
    api: FakeApi, towline: Towline, arguments: list[str], answers: dict[str, Any]
) -> None:
    for path, value in answers.items():
        api.answer("GET", path, value)
    out = towline(*arguments).out
    assert out.strip()
    assert not set(out) & {"\x1b", "\x07", "\u202e"}


def test_logs_come_as_they_are(api: FakeApi, towline: Towline) -> None:
    api.stream(LOGS, b"\x1b[31mred\x1b[0m\r", kind="text/plain")
    assert towline("session", "logs", "-f", SESSION).out == "\x1b[31mred\x1b[0m\r"
    assert api.requests[0].query == {"kernel": ["0"], "follow": ["true"]}


def test_events_are_followed_to_the_end_one_line_each(api: FakeApi, towline: Towline) -> None:
    api.stream(EVENTS, step(8, "PULLING"), ("progress", pull()), step(9, "TERMINATED", message="x" * 200))
    lines = towline("session", "events", "-f", "--after=7", SESSION).out.splitlines()
    assert len(lines) == 3
    assert lines[2].endswith("x" * 200)
    assert api.requests[0].headers["Last-Event-ID"] == "7"
    as_json = towline("session", "events", "-f", "--json", SESSION).out.splitlines()
    assert [json.loads(line)["event"] for line in as_json] == ["transition", "progress", "transition"]


@pytest.mark.parametrize(
    ("arguments", "path", "body"),
    [
        (["cancel", SESSION], "cancel", {"force": False, "why": ""}),
        (["cancel", SESSION, "--force", "--why", "stuck"], "cancel", {"force": True, "why": "stuck"}),
        (["terminate", SESSION, "--why=done"], "terminate", {"why": "done"}),
    ],
)
def test_an_end_is_asked_for(api: FakeApi, towline: Towline, arguments: list[str], path: str, body: Any) -> None:
    api.answer("POST", f"{SHOW}/{path}", session("PULLING", None), status=202)
    api.answer("POST", f"{SHOW}/{path}", session("CANCELLED", "cancelled-by-user"), status=202)
    assert towline("session", *arguments).out == f"{SESSION} is asked to end; it is PULLING now\n"
    assert api.requests[0].body == body
    assert "has ended: CANCELLED (cancelled-by-user)" in towline("session", *arguments).out


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (session(exit_code=0), 0),
        (session(exit_code=1), 1),
        (session("ERROR", "dns", exit_code=None), 1),
        (session("CANCELLED", "cancelled-by-user", exit_code=None), 1),
    ],
)
def test_waiting_ends_with_the_session(api: FakeApi, towline: Towline, end: dict[str, Any], code: int) -> None:
    api.answer("GET", SHOW, session("RUNNING", None))
    api.answer("GET", SHOW, end)
    done = towline("session", "wait", SESSION)
    assert (done.code, done.out) == (code, f"{SESSION} {end['status']} ({end['reason']})\n")


def test_waiting_ends_in_time(api: FakeApi, towline: Towline) -> None:
    api.answer("GET", SHOW, session("PULLING", None))
    done = towline("session", "wait", "--timeout=0.05", SESSION)
    assert done.code == 1
    assert "has not ended within 0.05 s; it is PULLING" in done.err


def test_a_pull_is_watched_until_it_ends(api: FakeApi, towline: Towline) -> None:
    other = account(pull(pull_id="other"), id="other")
    api.stream(
        "/v1/pulls",
        ("pulls", {"pulls": [account(pull())]}),
        ("progress", other),
        ("ended", other),
        ("ended", account(id="pull-1")),
        HOLD,
    )
    done = towline("pull", "watch", "pull-1")
    assert done.code == 0
    assert len(done.out.splitlines()) == 1


def test_a_pull_that_is_not_in_flight_is_not_waited_for(api: FakeApi, towline: Towline) -> None:
    api.stream("/v1/pulls", ("pulls", {"pulls": []}), HOLD)
    assert towline("pull", "watch", "pull-1").code == 0


def test_watching_goes_on_when_the_connection_breaks(api: FakeApi, towline: Towline) -> None:
    api.stream("/v1/pulls", ("pulls", {"pulls": [account(pull())]}), BREAK)
    api.stream("/v1/pulls", ("pulls", {"pulls": []}), HOLD)
    assert towline("pull", "watch", "pull-1").code == 0
    assert len(api.asked("GET", "/v1/pulls")) == 2


def test_pulls_are_watched_as_json_for_a_while(api: FakeApi, towline: Towline) -> None:
    api.stream("/v1/pulls", ("pulls", {"pulls": [account(pull())]}), HOLD)
    done = towline("pull", "watch", "--seconds=0.5", "--json")
    assert done.code == 0
    assert [json.loads(line)["progress"]["percent"] for line in done.out.splitlines()] == [25.0]


def test_past_pulls_tell_how_they_ended(api: FakeApi, towline: Towline) -> None:
    ended = account(outcome="failed", ended_at="2026-01-01T00:01:30Z", reason="dns", message="no such host", attempts=3)
    api.answer("GET", "/v1/pulls", {"pulls": [ended]})
    assert "failed, 0 B in 1m30s, 3 attempts, dns: no such host" in towline("pull", "ls", "--all").out


def test_a_pull_is_cancelled_with_its_reason(api: FakeApi, towline: Towline) -> None:
    api.answer("POST", "/v1/pulls/pull-1/cancel", account(waits=[{"session_id": SESSION, "outcome": "cancelled"}]))
    assert towline("pull", "cancel", "pull-1", "--why=stuck").out == f"{SESSION}\tcancelled\n"
    assert api.requests[0].body == {"why": "stuck"}


def test_users_and_tokens_are_made(api: FakeApi, towline: Towline) -> None:
    api.answer("POST", "/v1/users", USER | {"role": "superadmin"}, status=201)
    api.answer("POST", "/v1/users/ann/tokens", TOKEN | {"token": "tow_secret"}, status=201)
    api.answer("DELETE", "/v1/tokens/t1", status=204)
    assert towline("user", "add", "ann", "--superadmin").out == "ann superadmin\n"
    assert towline("user", "token", "ann", "--label=laptop").out == "tow_secret\n"
    assert towline("user", "token", "ann", "--revoke=t1").code == 0
    assert [request.body for request in api.requests] == [
        {"name": "ann", "role": "superadmin", "project": None},
        {"name": "laptop"},
        None,
    ]


def test_a_user_is_put_into_a_project(api: FakeApi, towline: Towline) -> None:
    api.answer("PATCH", "/v1/users/ann", USER | {"project": "vision"})
    assert towline("user", "move", "ann", "vision").out == "ann user vision\n"
    assert api.requests[0].body == {"project": "vision"}


def test_a_quota_is_set_and_lifted(api: FakeApi, towline: Towline) -> None:
    api.answer("PUT", "/v1/quotas/user/%2A", QUOTA)
    api.answer("DELETE", "/v1/quotas/project/vision", status=204)
    set_ = towline("quota", "set", "user", "*", "--cpu=2.5", "--memory=1g", "--lifetime=1h")
    assert set_.out == "user ann\t1/3\t0.5/2.5\t536.9 MB/1.1 GB\t0/-\t2/-\t4\t3600\t50\n"
    assert api.requests[0].body == {"cpu": 2.5, "memory": "1g", "lifetime": 3600.0}
    assert towline("quota", "unset", "project", "vision").code == 0


@pytest.mark.parametrize(
    "command",
    ["run", "session ls", "session logs", "session events", "session wait", "pull watch", "agent ls", "user token"],
)
def test_every_command_explains_itself(towline: Towline, command: str) -> None:
    done = towline(*command.split(), "--help")
    assert done.code == 0
    assert "Usage" in done.out


@pytest.mark.parametrize(
    ("arguments", "act", "body"),
    [
        (["cordon", "a1", "--why=new disks"], "cordon", {"why": "new disks"}),
        (["drain", "a1", "--deadline=1h30m", "--why=x"], "drain", {"why": "x", "deadline": 5400.0}),
        (["drain", "a1"], "drain", {"why": "", "deadline": None}),
        (["uncordon", "a1"], "uncordon", {"why": ""}),
    ],
)
def test_an_agent_is_taken_out_of_use_and_put_back(
    api: FakeApi, towline: Towline, arguments: list[str], act: str, body: dict[str, Any]
) -> None:
    api.answer("POST", f"/v1/agents/a1/{act}", AGENT | {"cordoned": act != "uncordon"})
    done = towline("agent", *arguments)
    assert done.code == 0
    assert "cordoned by root new disks" in done.out
    assert api.requests[0].body == body


def test_a_deadline_that_is_none_is_refused_before_anything_is_asked(api: FakeApi, towline: Towline) -> None:
    assert towline("agent", "drain", "a1", "--deadline=soon").code == 2
    assert api.requests == []


@pytest.mark.parametrize(("drift", "code"), [([], 0), (["kernel 0 of ses-1 holds nothing"], 1)])
def test_an_audit_fails_where_the_ledger_has_drifted(
    api: FakeApi, towline: Towline, drift: list[str], code: int
) -> None:
    api.answer("GET", "/v1/ledger/drift", {"drift": drift})
    done = towline("agent", "audit")
    assert (done.code, done.out) == (code, f"{(drift or ['the ledger holds what the kernels do'])[0]}\n")
