"""Thirty sessions at once on one engine: each reaches its right end, and nothing is left."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.stack import RunningStack
from tests.rig.images import PushedImage

pytestmark = pytest.mark.usefixtures("no_leftovers")


def test_thirty_sessions_at_once(stack: RunningStack, small: PushedImage) -> None:
    def one(number: int) -> tuple[int, dict[str, object]]:
        command = ("nosuch",) if number % 10 == 9 else ("sh", "-c", f"echo {number}; exit {number % 3}")
        resources = {"cpu": 0.5, "memory": "16m"}  # On two cores, most of them have to wait.
        return number, stack.ended(stack.create(small.reference, *command, resources=resources), timeout_seconds=300)

    with ThreadPoolExecutor(30) as pool:
        ends = dict(pool.map(one, range(30)))
    for number, view in ends.items():
        if number % 10 == 9:
            assert (view["status"], view["reason"]) == ("ERROR", "command-not-found")
        else:
            assert (view["status"], view["exit_code"]) == ("TERMINATED", number % 3), view
