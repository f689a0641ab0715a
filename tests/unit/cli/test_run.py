"""`towline run`, off a terminal and on one."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.rig.eventually import eventually_sync
from tests.unit.cli.conftest import Towline
from tests.unit.cli.fake_api import BREAK, HOLD, FakeApi
from tests.unit.cli.values import EVENTS, LOGS, SESSION, problem, pull, session, step

SHOW = f"/v1/sessions/{SESSION}"
CANCEL = f"{SHOW}/cancel"


def runs(api: FakeApi, end: dict[str, object], log: bytes = b"hello\n") -> None:
    """A session that is pulled, runs, and ends as said."""
    api.answer("POST", "/v1/sessions", session("PENDING", None), status=201)
    api.stream(EVENTS, step(1, "PULLING"), ("progress", pull()), step(2, "RUNNING"), BREAK)
    api.stream(EVENTS, step(3, str(end["status"]), reason=end["reason"], message=end["message"]))
    api.stream(LOGS, log, kind="text/plain")
    api.answer("GET", SHOW, end)


def test_the_pull_is_shown_the_output_is_alone_on_stdout(api: FakeApi, towline: Towline) -> None:
    runs(api, session(exit_code=7, message="exit code 7"))
    done = towline("run", "-e", "A=1", "busybox", "sh", "-c", "exit 7")
    assert (done.code, done.out) == (7, "hello\n")
    lines = done.err.splitlines()
    assert lines[0] == f"session {SESSION}"
    assert "PULLING" in lines
    assert any("downloading 25.0% 50.0 MB/200.0 MB, 10.0 MB/s, 15s left" in line for line in lines)
    assert lines[-1] == "TERMINATED (exited): exit code 7"
    sent = api.asked("POST", "/v1/sessions")[0]
    assert (sent.body["image"], sent.body["command"]) == ("busybox", ["sh", "-c", "exit 7"])
    assert sent.body["env"] == {"A": "1"}


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (session(exit_code=0), 0),
        (session(exit_code=3), 3),
        (session(reason="time-limit", exit_code=137), 124),
        (session(reason="oom-killed", exit_code=137), 137),
        (session(reason="oom-killed", exit_code=None), 1),
        (session(reason="terminated-by-user", exit_code=143), 1),
        (session("CANCELLED", "cancelled-by-admin", exit_code=None), 1),
        (session("ERROR", "image-not-found", exit_code=None, message="no \x1b[2J such image"), 1),
    ],
)
def test_the_exit_code_is_the_commands_or_says_what_happened(
    api: FakeApi, towline: Towline, end: dict[str, object], code: int
) -> None:
    runs(api, end)
    done = towline("run", "busybox")
    assert done.code == code
    assert (f"towline: {end['status']}" in done.err) == (end["reason"] != "exited")
    assert "\x1b" not in done.err


def test_what_fails_before_it_runs_is_told_once(api: FakeApi, towline: Towline) -> None:
    api.answer("POST", "/v1/sessions", session("PENDING", None), status=201)
    api.stream(EVENTS, step(1, "ERROR", reason="image-not-found", message="check the name"))
    api.stream(LOGS, kind="text/plain")
    api.answer("GET", SHOW, session("ERROR", "image-not-found", exit_code=None, message="check the name"))
    done = towline("run", "busybox:nope")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("check the name") == 1
    assert done.err.splitlines()[-2:] == ["ERROR (image-not-found): check the name", "towline: ERROR (image-not-found)"]


def test_as_json_every_line_is_an_event(api: FakeApi, towline: Towline) -> None:
    runs(api, session())
    done = towline("run", "--json", "busybox")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["event"] for line in lines] == ["transition", "progress", "transition", "log", "transition"]
    assert lines[3] == {"event": "log", "kernel": 0, "text": "hello\n"}
    assert (done.code, done.err) == (0, "")


def test_detached_it_prints_the_id(api: FakeApi, towline: Towline) -> None:
    api.answer("POST", "/v1/sessions", session("PENDING", None), status=201)
    assert towline("run", "-d", "busybox").out == f"{SESSION}\n"
    assert json.loads(towline("run", "-d", "--json", "busybox").out)["id"] == SESSION


def test_refused_input_ends_with_2_and_names_the_field(api: FakeApi, towline: Towline) -> None:
    errors = [{"field": "image", "problem": "uppercase is not allowed"}]
    api.answer("POST", "/v1/sessions", problem("no", errors=errors), status=422)
    done = towline("run", "BusyBox")
    assert (done.code, done.out) == (2, "")
    assert done.err == "towline: refused:\n  image: uppercase is not allowed\n"


@pytest.mark.parametrize("arguments", [["run"], ["run", "--cpus=many", "busybox"], ["run", "--nosuch", "busybox"]])
def test_bad_usage_ends_with_2_and_asks_nothing(api: FakeApi, towline: Towline, arguments: list[str]) -> None:
    assert towline(*arguments).code == 2
    assert api.requests == []


def test_without_a_server_it_says_how_to_start_one(towline: Towline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWLINE_API_URL", "http://127.0.0.1:1")
    done = towline("run", "busybox")
    assert done.code == 1
    assert "towline up" in done.err


def process(api: FakeApi, **streams: object) -> subprocess.Popen[bytes]:
    """`towline run busybox` as a process, attached to a session that goes on."""
    api.answer("POST", "/v1/sessions", session("PENDING", None), status=201)
    api.stream(EVENTS, step(1, "PULLING"), ("progress", pull()), HOLD)
    api.answer("POST", CANCEL, session("PULLING", None), status=202)
    environment = dict(os.environ, TOWLINE_API_URL=api.url, TOWLINE_TOKEN="t", TERM="xterm")
    command = [sys.executable, "-m", "towline.cli.main", "run", "busybox"]
    return subprocess.Popen(command, env=environment, **streams)  # type: ignore[call-overload, no-any-return]


def test_interrupted_off_a_terminal_the_session_goes_on(api: FakeApi) -> None:
    running = process(api, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stderr is not None
    seen = b""
    while b"downloading" not in seen:
        seen += running.stderr.readline()
    running.send_signal(signal.SIGINT)
    _, rest = running.communicate(timeout=30)
    assert running.returncode == 130
    assert f"session {SESSION} goes on".encode() in rest
    assert api.asked("POST", CANCEL) == []


@pytest.mark.parametrize(("typed", "cancels"), [(b"\n", True), (b"y\n", True), (b"n\n", False), (b"\x03", False)])
def test_interrupted_on_a_terminal_it_asks(api: FakeApi, typed: bytes, cancels: bool) -> None:
    ours, theirs = pty.openpty()
    running = process(api, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=False)
    os.close(theirs)
    seen = _read_until(ours, b"downloading")
    running.send_signal(signal.SIGINT)
    seen += _read_until(ours, b"[Y/n]")
    if typed == b"\x03":
        running.send_signal(signal.SIGINT)
    else:
        os.write(ours, typed)
    _read_until(ours, b"is asked to end" if cancels else b"goes on;")
    assert running.wait(30) == 130
    os.close(ours)
    asked = api.asked("POST", CANCEL)
    assert [request.body for request in asked] == ([{"why": "Ctrl-C"}] if cancels else [])


def _read_until(terminal: int, text: bytes) -> bytes:
    seen = b""

    def arrived() -> None:
        nonlocal seen
        seen += os.read(terminal, 65536)
        assert text in seen, seen

    eventually_sync(arrived, timeout=30, interval=0.01)
    return seen
