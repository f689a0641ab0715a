"""What has to be so before a session is placed at all: its time has come, and the sessions that it depends on are done."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from towline.domain.lifecycle import FINAL, Reason, Status
from towline.domain.records import Placement

_NAMED_MAX: Final = 5


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """A session that another depends on. `status` None: there is no such session. `exit_codes`: of its kernels that ended by
    themselves."""

    session_id: str
    status: Status | None
    reason: Reason | None = None
    exit_codes: tuple[int | None, ...] = ()

    @property
    def is_done(self) -> bool:
        """It ended by itself, and every command of it that did had exit code 0."""
        ended = self.status is Status.TERMINATED and self.reason is Reason.EXITED
        return ended and all(code == 0 for code in self.exit_codes)

    @property
    def has_failed(self) -> bool:
        """It can never be done any more."""
        return self.status is None or (self.status in FINAL and not self.is_done)

    @property
    def how(self) -> str:
        """How it stands, as a part of a sentence."""
        if self.status is None:
            return "does not exist"
        if self.status not in FINAL:
            return f"is {self.status}"
        if self.reason is Reason.EXITED:
            codes = [code for code in self.exit_codes if code != 0] or [0]
            return f"ended with exit code {codes[0]}"
        return f"ended as {self.status} ({self.reason})"


def hindrance(starts_at: datetime | None, dependencies: Sequence[Dependency], now: datetime) -> Placement | None:
    """Why the session is not to be placed: not yet, or never; None: nothing hinders it."""
    failed = [one for one in dependencies if one.has_failed]
    if failed:
        return Placement(never=True, reason=Reason.DEPENDENCY_FAILED, message=failed_sentence(failed))
    if starts_at is not None and starts_at > now:
        message = f"starts no earlier than {starts_at:%Y-%m-%d %H:%M:%S} UTC"
        return Placement(reason=Reason.STARTS_AT, message=message, ask_at=starts_at)
    open_ = [one for one in dependencies if not one.is_done]
    if open_:
        return Placement(
            reason=Reason.DEPENDENCY, message=f"waits for {len(open_)} of {len(dependencies)}: {_named(open_)}"
        )
    return None


def failed_sentence(failed: Sequence[Dependency]) -> str:
    """What has become of the sessions that were to end with exit code 0."""
    return f"depends on what did not end with exit code 0: {_named(failed)}"


def _named(dependencies: Sequence[Dependency]) -> str:
    named = [f"session {one.session_id} {one.how}" for one in dependencies[:_NAMED_MAX]]
    more = len(dependencies) - len(named)
    return ", ".join(named) + f" and {more} more" * bool(more)
