"""What a stack is made of, as data: parts that keep running, and steps that are done once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from towline.embedded.children import Command
from towline.errors import TowlineError


@dataclass(frozen=True, kw_only=True)
class Part:
    """A process that is to run. `prepare` may take its time and is called in a thread, before every start.

    `is_ready` is asked until it says yes, or `ready_seconds` are over.
    """

    name: str
    prepare: Callable[[], Command]
    is_ready: Callable[[], Awaitable[bool]]
    ready_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something that is done once, when everything before it is ready."""

    name: str
    run: Callable[[], Awaitable[None]]


Stage = tuple[Part | Step, ...]
"""What can start, and stop, together."""


class PartFailedError(TowlineError):
    """A part or a step of the stack failed. `part` names it; the message has the reason and its last log lines."""

    code = "part-failed"

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part} {reason}")
        self.part = part
