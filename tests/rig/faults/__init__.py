"""A registry that fails as it is told to."""

from tests.rig.faults.kinds import (
    Answer,
    Cut,
    Delay,
    Fault,
    Flip,
    Garbage,
    IgnoreRange,
    NeverAnswer,
    RequireBasic,
    RequireBearer,
    Stall,
    Throttle,
    Trickle,
    WrongLength,
    registry_error,
)
from tests.rig.faults.registry import FaultRegistry
from tests.rig.faults.rules import ActiveRule, Rule
from tests.rig.faults.traffic import Ending, Exchange, Traffic

__all__ = [
    "ActiveRule",
    "Answer",
    "Cut",
    "Delay",
    "Ending",
    "Exchange",
    "Fault",
    "FaultRegistry",
    "Flip",
    "Garbage",
    "IgnoreRange",
    "NeverAnswer",
    "RequireBasic",
    "RequireBearer",
    "Rule",
    "Stall",
    "Throttle",
    "Traffic",
    "Trickle",
    "WrongLength",
    "registry_error",
]
