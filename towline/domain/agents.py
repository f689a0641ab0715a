"""Agents: the states they are in, what they say of themselves, and what sessions are told about them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from towline.domain.lifecycle import Reason
from towline.domain.sessions import Actor


class AgentStatus(StrEnum):
    """Only an agent that is ONLINE is given new work. ENGINE_DOWN: it lives, and its engine does not answer."""

    ONLINE = "ONLINE"
    ENGINE_DOWN = "ENGINE_DOWN"
    LOST = "LOST"


class AgentEvent(StrEnum):
    """What is kept of an agent's past."""

    ONLINE = "online"
    ENGINE_DOWN = "engine-down"
    LOST = "lost"
    CORDONED = "cordoned"
    DRAINING = "draining"
    UNCORDONED = "uncordoned"


@dataclass(frozen=True, kw_only=True)
class AgentFacts:
    """What an agent says of itself. Capacity in cores, bytes and whole GPUs; `platform` as `linux/amd64`.

    `grace_seconds`: so long may it be silent, or its engine be away, before sessions that do not run yet are placed anew;
    `running_grace_seconds`: so much longer may it be so before those that run are given up.
    """

    agent_id: str
    boot_id: str
    cpu: float
    memory_bytes: int
    gpu: int = 0
    platform: str = ""
    engine_version: str = ""
    store_kind: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    resource_group: str = ""
    grace_seconds: float = 20.0
    running_grace_seconds: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A worker wants to serve an agent. `boot_id` names this life of it, `where` tells people which process it is.

    `host`: a host on which only one process at a time can make a claim, so that of two claims from there the older one's
    worker is dead; empty where that is not known.
    """

    boot_id: str
    where: str
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class Attend:
    """Which life of the agent is to attend."""

    boot_id: str


@dataclass(frozen=True, kw_only=True)
class EngineDown:
    """The agent lives, and cannot use its engine."""

    boot_id: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RecordAgent:
    """An agent's state, with what it said last."""

    facts: AgentFacts
    status: AgentStatus = AgentStatus.ONLINE
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class AgentRecorded:
    """`woken`: sessions waiting for capacity, in the order in which they shall try again; `sessions`: those that hold some of
    the agent's. None is given a place there meanwhile."""

    woken: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drain:
    """Nobody shall be on the agent any more, from `deadline` on (None: as they end). Payload of the signal `drain`."""

    actor: Actor
    why: str = ""
    deadline: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Told to the sessions on an agent. One that does not run yet is placed anew at once; one that runs may stay until
    `deadline` (None: until it ends by itself)."""

    agent_id: str
    reason: Reason
    message: str
    deadline: datetime | None = None
    actor: Actor | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Stay:
    """What a `Leave` with this reason said does not hold any more."""

    agent_id: str
    reason: Reason
