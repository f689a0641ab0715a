"""Which request meets which fault."""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, Final

from pydantic import ConfigDict

from tests.rig.faults.kinds import Fault, Throttle
from tests.rig.faults.pacing import Pace

_REGEX: Final = "re:"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A fault, and the requests that it strikes: the `first` to the `last` (counted from 1; None: all further) that match.

    `path` is a glob over the whole URL path (`*` matches slashes, too), or a regular expression after `re:`.
    With `per_path` each concrete path (each blob, say) is counted by itself.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    fault: Fault
    path: str = "*"
    method: str = "*"
    first: int = 1
    last: int | None = None
    per_path: bool = False

    def __post_init__(self) -> None:
        """Refuse a range that holds nothing."""
        if self.first < 1 or (self.last is not None and self.last < self.first):
            raise ValueError(f"no request is between the {self.first}. and the {self.last}.")

    def matches(self, method: str, path: str) -> bool:
        """Whether a request counts; HEAD is not GET."""
        if self.method not in ("*", method):
            return False
        if self.path.startswith(_REGEX):
            return re.fullmatch(self.path.removeprefix(_REGEX), path) is not None
        return fnmatchcase(path, self.path)


class ActiveRule:
    """A rule in force, with what it has met."""

    def __init__(self, number: int, rule: Rule) -> None:
        self.number: Final = number
        self.rule: Final = rule
        self.struck = 0
        """How many requests the fault has been applied to."""
        self.released: Final = asyncio.Event()
        self._met: Final[Counter[str]] = Counter()
        total = rule.fault.total_bytes_per_second if isinstance(rule.fault, Throttle) else None
        self.total_pace: Final = Pace(total) if total else None

    @property
    def met(self) -> int:
        """How many requests have matched, inside the range or not."""
        return self._met.total()

    def strikes(self, method: str, path: str) -> bool:
        """Count a request, and tell whether the fault applies to it."""
        if not self.rule.matches(method, path):
            return False
        key = path if self.rule.per_path else ""
        self._met[key] += 1
        if self._met[key] < self.rule.first or (self.rule.last is not None and self._met[key] > self.rule.last):
            return False
        self.struck += 1
        return True


class RuleBook:
    """The rules in force, in the order in which they were added. Belongs to the proxy's event loop."""

    def __init__(self) -> None:
        self._active: list[ActiveRule] = []
        self._numbers = 0

    @property
    def active(self) -> tuple[ActiveRule, ...]:
        """All of them."""
        return tuple(self._active)

    def add(self, rule: Rule) -> ActiveRule:
        """Put a rule in force: for answers already being sent, too, as far as its fault still can strike them."""
        self._numbers += 1
        active = ActiveRule(self._numbers, rule)
        self._active.append(active)
        return active

    def remove(self, number: int) -> None:
        """Lift a rule and release what it holds. Raises `LookupError` when there is none with this number."""
        found = next((active for active in self._active if active.number == number), None)
        if found is None:
            raise LookupError(f"no rule {number}")
        self._active.remove(found)
        found.released.set()

    def clear(self) -> None:
        """Lift all."""
        for active in self.active:
            self.remove(active.number)


class Struck:
    """The faults of one request. Rules that are added later join in; removed ones drop out."""

    def __init__(self, book: RuleBook, method: str, path: str) -> None:
        self._book: Final = book
        self._request: Final = (method, path)
        self._newest_seen = 0
        self._mine: list[ActiveRule] = []

    def now(self) -> list[ActiveRule]:
        """What applies at this moment."""
        for active in self._book.active:
            if active.number > self._newest_seen:
                self._newest_seen = active.number
                if active.strikes(*self._request):
                    self._mine.append(active)
        self._mine = [active for active in self._mine if not active.released.is_set()]
        return self._mine
