"""`towline run`: a session from request to exit code, with the pull to be seen."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer

from towline.cli.client import Client, StreamEvent, session_path
from towline.cli.declared import declared_by
from towline.cli.output import harmless, print_json_line, print_line
from towline.cli.progress import BarDisplay, LineDisplay, PullDisplay
from towline.cli.run_options import RunOptions, request_body
from towline.domain.lifecycle import FINAL, Reason, Status
from towline.domain.records import WAITS

app = typer.Typer()

_HAS_OUTPUT: Final = FINAL | {Status.RUNNING, Status.TERMINATING}
TIME_LIMIT_CODE: Final = 124
INTERRUPTED_CODE: Final = 130


@app.command(context_settings={"allow_interspersed_args": False})
@declared_by(RunOptions)
def run(options: RunOptions) -> None:
    """Run a command in a container: show the pull, stream the logs, exit with the container's exit code.

    Exits with 124 at the time limit, 130 when interrupted, 1 when the session failed, 2 when it was refused.
    """
    body = request_body(options)
    client = Client()
    made = client.create(body)
    if options.detach:
        print_json_line(made) if options.as_json else print_line(made["id"])
        return
    raise typer.Exit(attend(client, made["id"], as_json=options.as_json))


def attend(client: Client, session_id: str, *, as_json: bool) -> int:
    """Show a session until its end; what this program exits with."""
    if not as_json:
        _say(f"session {session_id}")
    try:
        with _display(as_json) as display:
            after = _until_output(client, session_id, display, as_json=as_json)
        for text in client.logs(session_id, follow=True):
            _print_log(text, as_json=as_json)
        for event in client.events(session_id, after=after) if after is not None else ():
            _print_event(event, as_json=as_json)
    except KeyboardInterrupt:
        return _interrupted(client, session_id)
    return _exit_code(client.session(session_id), as_json=as_json)


@contextmanager
def _display(as_json: bool) -> Iterator[PullDisplay]:
    if sys.stderr.isatty() and not as_json:
        with BarDisplay() as bars:
            yield bars
    else:
        yield LineDisplay()


def _until_output(client: Client, session_id: str, display: PullDisplay, *, as_json: bool) -> int | None:
    """Follow the events until the container has output to show. The last event's number; None: the session has ended."""
    for event in client.events(session_id):
        _print_event(event, as_json=as_json)
        if event.kind == "progress":
            if not as_json:
                display.show(event.data)
        elif event.data["session_status"] in _HAS_OUTPUT - FINAL:
            return int(event.data["seq"])
    return None


def _print_event(event: StreamEvent, *, as_json: bool) -> None:
    if as_json:
        print_json_line({"event": event.kind, **event.data})
    elif event.kind == "transition":
        data = event.data
        why = f" ({data['reason']})" if data["reason"] else ""
        message = f": {harmless(data['message'])}" if data["message"] else ""
        _say(f"{data['to_status']}{why}{message}")
    elif event.kind == WAITS:
        _say(f"waits ({event.data['reason']}): {harmless(event.data['message'])}")


def _print_log(text: str, *, as_json: bool) -> None:
    if as_json:
        print_json_line({"event": "log", "kernel": 0, "text": text})
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def _say(line: str) -> None:
    # Not to stdout: that is the container's.
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _interrupted(client: Client, session_id: str) -> int:
    if sys.stdin.isatty() and sys.stderr.isatty() and _wants_to_cancel():
        client.ask_patiently("POST", f"{session_path(session_id)}/cancel", body={"why": "Ctrl-C"})
        _say(f"session {session_id} is asked to end")
    else:
        _say(f"\nsession {session_id} goes on; see it: towline session show {session_id}")
    return INTERRUPTED_CODE


def _wants_to_cancel() -> bool:
    try:
        return typer.confirm("\nCancel the session? (No: it goes on without you)", default=True, err=True)
    except typer.Abort:  # Ctrl-C again.
        return False


def _exit_code(session: dict[str, Any], *, as_json: bool) -> int:
    """As the container exited; an end of any other kind is said."""
    reason = session["reason"]
    if reason == Reason.EXITED:
        return int(session["exit_code"] or 0)
    # Off JSON the last transition has been printed, with the message.
    message = f": {harmless(session['message'])}" if as_json else ""
    _say(f"towline: {session['status']} ({reason}){message}")
    if reason == Reason.TIME_LIMIT:
        return TIME_LIMIT_CODE
    return int(session["exit_code"] or 1) if reason == Reason.OOM_KILLED else 1
