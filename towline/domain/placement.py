"""Choosing agents for a session's kernels: pure, deterministic, explained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from towline.domain.lifecycle import Reason
from towline.domain.sessions import ClusterMode, Resources

_NAMED_MAX: Final = 5
"""So many agents are named in a sentence; it goes into histories and onto screens."""

_LABELS_MAX: Final = 100
"""So many characters of the labels that are asked for; they may have tens of kilobytes."""


@dataclass(frozen=True, kw_only=True)
class AgentRoom:
    """An agent as placement sees it: cores, bytes and GPUs in all and free, and whether it takes new work."""

    agent_id: str
    platform: str
    resource_group: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    cpu: float
    memory_bytes: int
    gpu: int
    cpu_free: float
    memory_bytes_free: int
    gpu_free: int
    online: bool = True
    cordoned: bool = False

    @property
    def is_open(self) -> bool:
        """It takes new work."""
        return self.online and not self.cordoned


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a session needs: `kernels` times `resources`, on `agent` where it is pinned, on agents of that platform and that
    resource group, with all those labels, where they are asked for."""

    kernels: int
    resources: Resources
    platform: str | None = None
    resource_group: str | None = None
    agent_labels: dict[str, str] | None = None
    agent: str | None = None
    cluster_mode: ClusterMode = ClusterMode.SINGLE_AGENT
    is_overdue: bool = False
    """It has waited for long enough that room is to be kept for it."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Agent ids by kernel, or none and why: not now, or never on any agent that is known."""

    agents: tuple[str, ...] = ()
    never: bool = False
    reason: Reason | None = None
    message: str = ""


def choose(wish: Wish, agents: Sequence[AgentRoom], *, ahead: Sequence[Wish] = ()) -> Choice:
    """All kernels or none. Among the agents that fit, the one with the most free memory and cores wins; equal ones in the
    order of their ids.

    `ahead` are the wishes of sessions whose turn comes first: room that they could be given now is not taken from them. One
    of them that does not fit now keeps nobody waiting, but for the first that is overdue: what is free on the largest agents
    that could take it is kept for it.
    """
    open_ = [agent for agent in agents if agent.is_open and not _lacks(wish, agent)]
    if not _assign(wish, open_):
        return _never(wish, agents) or _not_now(wish, agents, open_)
    before = _serve(ahead, agents)
    fitting = [agent for agent in before.left if not _lacks(wish, agent) and _fits(agent, wish, _together(wish))]
    assigned = _assign(wish, fitting)
    if not assigned:
        return Choice(
            reason=Reason.NO_CAPACITY,
            message=_after(wish, len(before.served) + before.keeps) + _others(wish, agents, open_),
        )
    return Choice(agents=assigned, message=_why(assigned, len(fitting)) + _others(wish, agents, fitting))


def who_fits(waiting: Iterable[tuple[str, Wish]], agents: Sequence[AgentRoom], *, limit: int) -> tuple[str, ...]:
    """The first `limit` of the waiting sessions (id and wish, in their order) that there is room for, one after the other."""
    queue = list(waiting)
    turn = _serve([wish for _, wish in queue], agents, limit=limit)
    return tuple(queue[index][0] for index in turn.served)


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """The indexes of the wishes that got room, the open agents with what is left of it, and whether some is kept for one."""

    served: Sequence[int]
    left: Sequence[AgentRoom]
    keeps: bool


def _serve(wishes: Sequence[Wish], agents: Sequence[AgentRoom], *, limit: int | None = None) -> _Turn:
    """Give room to each wish that fits, in order."""
    rooms = {agent.agent_id: agent for agent in agents if agent.is_open}
    served: list[int] = []
    keeps = is_overdue_seen = False
    for index, wish in enumerate(wishes):
        if limit is not None and len(served) == limit:
            break
        suitable = [room for room in rooms.values() if not _lacks(wish, room)]
        assigned = _assign(wish, suitable)
        for agent_id in assigned:
            rooms[agent_id] = _less(rooms[agent_id], wish.resources)
        if assigned:
            served.append(index)
        elif wish.is_overdue and not is_overdue_seen:
            kept = _kept_for(wish, suitable)
            keeps = bool(kept)
            rooms = {agent_id: room for agent_id, room in rooms.items() if agent_id not in kept}
        is_overdue_seen = is_overdue_seen or wish.is_overdue
    return _Turn(served=served, left=list(rooms.values()), keeps=keeps)


def _kept_for(wish: Wish, agents: Sequence[AgentRoom]) -> frozenset[str]:
    """The agents, the largest first and as few as need be, on which it will fit once they are empty.

    Which they are does not depend on what is free: if a placement could move the choice, it would set room free for others
    whom nobody wakes.
    """
    together = _together(wish)
    emptied = sorted(map(_emptied, agents), key=_most_room_first)
    able = [agent for agent in emptied if _fits(agent, wish, together)]
    for count in range(1, len(able) + 1):
        if _assign(wish, able[:count]):
            return frozenset(agent.agent_id for agent in able[:count])
    return frozenset()


def _never(wish: Wish, agents: Sequence[AgentRoom]) -> Choice | None:
    """Why no agent that is known could ever take it, or None. A fleet without agents may yet get some."""
    if not agents:
        return None
    known = [agent for agent in agents if wish.agent in (None, agent.agent_id)]
    suitable = [agent for agent in known if not _lacks(wish, agent)]
    if not known:
        why = f"there is no agent {wish.agent}"
    elif not suitable:
        asked = _conditions(wish)
        pinned = f"agent {wish.agent} is not {asked[_lacks(wish, known[0])]}"
        why = pinned if wish.agent else f"no agent is {'; '.join(asked.values())}"
    elif not _assign(wish, [_emptied(agent) for agent in suitable]):
        why = _too_large(wish, suitable)
    else:
        return None
    return Choice(never=True, reason=Reason.CANNOT_EVER_FIT, message=why)


def _conditions(wish: Wish) -> dict[str, str]:
    """What is asked of an agent besides room, in words."""
    asked = {}
    if wish.platform:
        asked["platform"] = f"of the platform {wish.platform}"
    if wish.resource_group is not None:
        asked["resource_group"] = f"in the resource group {wish.resource_group}"
    if wish.agent_labels:
        labels = ", ".join(f"{key}={value}" for key, value in wish.agent_labels.items())
        asked["labels"] = "labelled " + (labels if len(labels) <= _LABELS_MAX else labels[: _LABELS_MAX - 1] + "…")
    return asked


def _lacks(wish: Wish, agent: AgentRoom) -> str:
    """The condition that it does not meet, by its key; empty if it suits. A platform that is not known suits."""
    if wish.agent not in (None, agent.agent_id):
        return "agent"
    if wish.platform and agent.platform and wish.platform.split("/")[:2] != agent.platform.split("/")[:2]:
        return "platform"
    if wish.resource_group not in (None, agent.resource_group):
        return "resource_group"
    return "" if (wish.agent_labels or {}).items() <= agent.labels.items() else "labels"


def _assign(wish: Wish, agents: Sequence[AgentRoom]) -> tuple[str, ...]:
    """An agent for each kernel, or nothing at all."""
    if wish.cluster_mode is ClusterMode.SINGLE_AGENT:
        fitting = [agent for agent in agents if _fits(agent, wish, wish.kernels)]
        return (min(fitting, key=_most_room_first).agent_id,) * wish.kernels if fitting else ()
    rooms = {agent.agent_id: agent for agent in agents}
    chosen: list[str] = []
    for _ in range(wish.kernels):
        fitting = [room for room in rooms.values() if _fits(room, wish, 1)]
        if not fitting:
            return ()
        room = min(fitting, key=_most_room_first)
        chosen.append(room.agent_id)
        rooms[room.agent_id] = _less(room, wish.resources)
    return tuple(chosen)


def _less(room: AgentRoom, resources: Resources) -> AgentRoom:
    return replace(
        room,
        cpu_free=room.cpu_free - resources.cpu,
        memory_bytes_free=room.memory_bytes_free - resources.memory_bytes,
        gpu_free=room.gpu_free - resources.gpu,
    )


def _emptied(room: AgentRoom) -> AgentRoom:
    return replace(room, cpu_free=room.cpu, memory_bytes_free=room.memory_bytes, gpu_free=room.gpu)


def _most_room_first(agent: AgentRoom) -> tuple[float, float, str]:
    return (-agent.memory_bytes_free, -agent.cpu_free, agent.agent_id)


def _together(wish: Wish) -> int:
    """How many of its kernels have to share an agent."""
    return wish.kernels if wish.cluster_mode is ClusterMode.SINGLE_AGENT else 1


def _fits(agent: AgentRoom, wish: Wish, kernels: int) -> bool:
    # Cores are floats that sums of fractions reach only nearly.
    each = wish.resources
    return (
        each.cpu * kernels <= agent.cpu_free + 1e-9
        and each.memory_bytes * kernels <= agent.memory_bytes_free
        and each.gpu * kernels <= agent.gpu_free
    )


def _needs(wish: Wish) -> str:
    resources = wish.resources
    each = f"{resources.cpu:g} cores, {resources.memory_bytes} bytes" + (
        f", {resources.gpu} GPUs" * bool(resources.gpu)
    )
    return each if wish.kernels == 1 else f"{wish.kernels} kernels of {each}"


def _too_large(wish: Wish, agents: Sequence[AgentRoom]) -> str:
    largest = min(map(_emptied, agents), key=_most_room_first)
    return (
        f"needs {_needs(wish)}; the largest agent, {largest.agent_id}, has {largest.cpu:g} cores, "
        f"{largest.memory_bytes} bytes, {largest.gpu} GPUs in all"
    )


def _no_room(wish: Wish, agents: Sequence[AgentRoom]) -> str:
    roomiest = min(agents, key=_most_room_first)
    return (
        f"needs {_needs(wish)}; the most that is free is {max(0.0, round(roomiest.cpu_free, 6)):g} cores, "
        f"{roomiest.memory_bytes_free} bytes, {roomiest.gpu_free} GPUs on {roomiest.agent_id}"
    )


def _after(wish: Wish, ahead: int) -> str:
    return f"needs {_needs(wish)}; what is free goes to {ahead} session{'' if ahead == 1 else 's'} that came before"


def _why(assigned: tuple[str, ...], fitting: int) -> str:
    names = ", ".join(dict.fromkeys(assigned))
    return f"{names}: the most room of {fitting} fitting agent{'' if fitting == 1 else 's'}"


def _not_now(wish: Wish, agents: Sequence[AgentRoom], open_: Sequence[AgentRoom]) -> Choice:
    if open_:
        why = _no_room(wish, open_) + _others(wish, agents, open_)
    elif agents:
        why = "no fitting agent is online and open for new work" + _others(wish, agents, ())
    else:
        why = "no agent has registered yet"
    return Choice(reason=Reason.NO_CAPACITY, message=why)


def _others(wish: Wish, agents: Sequence[AgentRoom], considered: Sequence[AgentRoom]) -> str:
    """Why those are not considered that are not; nothing where one agent is asked for."""
    ids = {agent.agent_id for agent in considered}
    left_out = [agent for agent in agents if agent.agent_id not in ids and wish.agent in (None, agent.agent_id)]
    if not left_out:
        return ""
    left_out.sort(key=lambda agent: agent.agent_id)
    named = [f"{agent.agent_id} ({_why_not(wish, agent)})" for agent in left_out[:_NAMED_MAX]]
    more = len(left_out) - len(named)
    return f"; not {', '.join(named)}" + f" and {more} more" * bool(more)


def _why_not(wish: Wish, agent: AgentRoom) -> str:
    if lacks := _lacks(wish, agent):
        return f"not {_conditions(wish)[lacks]}"
    if not agent.online:
        return "away"
    if agent.cordoned:
        return "cordoned"
    return "its room goes to sessions before" if _fits(agent, wish, _together(wish)) else "no room"
