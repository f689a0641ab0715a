"""The end of a process: its code and its output are Python's, without taking the interpreter down."""

import os
import subprocess
import sys

import pytest


def _leave(body: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import atexit, sys\nfrom towline.leaving import leave_after\n"
        f"def run():\n    print('x' * 100_000)\n    {body}\n"
        "atexit.register(print, 'taken down')\nleave_after(run)\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('no such agent')", 1, "no such agent\n"),
    ],
)
def test_the_code_and_the_output_are_those_of_python(body: str, code: int, said: str) -> None:
    ended = _leave(body)
    assert (ended.returncode, ended.stderr) == (code, said)
    # "taken down" would come from the end of the interpreter, in which threads of the client may abort.
    assert ended.stdout == "x" * 100_000 + "\n"


def test_an_error_is_shown() -> None:
    ended = _leave("raise ValueError('seen')")
    assert ended.returncode == 1
    assert ended.stderr.endswith("ValueError: seen\n")


def test_a_reader_that_has_gone_is_no_abort() -> None:
    script = "from towline.leaving import leave_after\nleave_after(lambda: print('x' * 10))\n"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=buffered, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (1, b"")
