"""Choosing agents for a session's kernels: pure, deterministic, explained."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from towline.domain.lifecycle import Reason
from towline.domain.sessions import ClusterMode, Resources


@dataclass(frozen=True, kw_only=True)
class AgentRoom:
    """An agent as placement sees it: cores, bytes and GPUs in all and free, and whether it takes new work."""

    agent_id: str
    platform: str
    cpu: float
    memory_bytes: int
    gpu: int
    cpu_free: float
    memory_bytes_free: int
    gpu_free: int
    online: bool = True
    cordoned: bool = False


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a session needs: `kernels` times `resources`, on `agent` where it is pinned."""

    kernels: int
    resources: Resources
    platform: str | None = None
    agent: str | None = None
    cluster_mode: ClusterMode = ClusterMode.SINGLE_AGENT


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Agent ids by kernel, or none and why: not now, or never on any agent that is known."""

    agents: tuple[str, ...] = ()
    never: bool = False
    reason: Reason | None = None
    message: str = ""


def choose(wish: Wish, agents: Sequence[AgentRoom]) -> Choice:
    """All kernels or none. Among the agents that fit, the one with the most free memory and cores wins; equal ones in the
    order of their ids."""
    known = [agent for agent in agents if wish.agent in (None, agent.agent_id)]
    if wish.agent is not None and not known:
        return Choice(never=True, reason=Reason.CANNOT_EVER_FIT, message=f"there is no agent {wish.agent}")
    fitting = [agent for agent in known if _platform_fits(wish.platform, agent.platform)]
    if known and not fitting:
        return Choice(never=True, reason=Reason.CANNOT_EVER_FIT, message=f"no agent is of the platform {wish.platform}")
    empty = [replace(a, cpu_free=a.cpu, memory_bytes_free=a.memory_bytes, gpu_free=a.gpu) for a in fitting]
    if empty and not _assign(wish, empty):
        return Choice(never=True, reason=Reason.CANNOT_EVER_FIT, message=_too_large(wish, empty))
    open_ = [agent for agent in fitting if agent.online and not agent.cordoned]
    if not open_:
        why = "no agent has registered yet" if not agents else "no fitting agent is online and open for new work"
        return Choice(reason=Reason.NO_CAPACITY, message=why)
    assigned = _assign(wish, open_)
    if not assigned:
        return Choice(reason=Reason.NO_CAPACITY, message=_no_room(wish, open_))
    return Choice(agents=assigned, message=_why(assigned, open_))


def _platform_fits(wanted: str | None, has: str) -> bool:
    return wanted is None or not has or wanted.split("/")[:2] == has.split("/")[:2]


def _assign(wish: Wish, agents: Sequence[AgentRoom]) -> tuple[str, ...]:
    if wish.cluster_mode is ClusterMode.SINGLE_AGENT:
        for agent in sorted(agents, key=_most_room_first):
            if _fits(agent, wish.resources, wish.kernels):
                return (agent.agent_id,) * wish.kernels
        return ()
    rooms = {agent.agent_id: agent for agent in agents}
    chosen: list[str] = []
    for _ in range(wish.kernels):
        room = next((r for r in sorted(rooms.values(), key=_most_room_first) if _fits(r, wish.resources, 1)), None)
        if room is None:
            return ()
        chosen.append(room.agent_id)
        rooms[room.agent_id] = replace(
            room,
            cpu_free=room.cpu_free - wish.resources.cpu,
            memory_bytes_free=room.memory_bytes_free - wish.resources.memory_bytes,
            gpu_free=room.gpu_free - wish.resources.gpu,
        )
    return tuple(chosen)


def _most_room_first(agent: AgentRoom) -> tuple[float, float, str]:
    return (-agent.memory_bytes_free, -agent.cpu_free, agent.agent_id)


def _fits(agent: AgentRoom, resources: Resources, kernels: int) -> bool:
    # Cores are floats that sums of fractions reach only nearly.
    return (
        resources.cpu * kernels <= agent.cpu_free + 1e-9
        and resources.memory_bytes * kernels <= agent.memory_bytes_free
        and resources.gpu * kernels <= agent.gpu_free
    )


def _needs(wish: Wish) -> str:
    resources = wish.resources
    each = f"{resources.cpu:g} cores, {resources.memory_bytes} bytes" + (
        f", {resources.gpu} GPUs" * bool(resources.gpu)
    )
    return each if wish.kernels == 1 else f"{wish.kernels} kernels of {each}"


def _too_large(wish: Wish, agents: Sequence[AgentRoom]) -> str:
    largest = max(agents, key=lambda agent: (agent.memory_bytes, agent.cpu))
    return (
        f"needs {_needs(wish)}; the largest agent, {largest.agent_id}, has {largest.cpu:g} cores, "
        f"{largest.memory_bytes} bytes, {largest.gpu} GPUs in all"
    )


def _no_room(wish: Wish, agents: Sequence[AgentRoom]) -> str:
    roomiest = min(agents, key=_most_room_first)
    return (
        f"needs {_needs(wish)}; the most that is free is {roomiest.cpu_free:g} cores, "
        f"{roomiest.memory_bytes_free} bytes, {roomiest.gpu_free} GPUs on {roomiest.agent_id}"
    )


def _why(assigned: tuple[str, ...], agents: Sequence[AgentRoom]) -> str:
    names = ", ".join(dict.fromkeys(assigned))
    return f"{names}: the most room of {len(agents)} fitting agent{'' if len(agents) == 1 else 's'}"
