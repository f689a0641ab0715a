"""What a session is: the spec as it was asked for and accepted. Values are already checked and normalised."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    """`batch` ends when its first kernel's command ends; `interactive` lives until it is ended."""

    BATCH = "batch"
    INTERACTIVE = "interactive"


class PullPolicy(StrEnum):
    """When the registry is asked: each time, only if the agent lacks the image, or not at all."""

    ALWAYS = "always"
    IF_NOT_PRESENT = "if-not-present"
    NEVER = "never"


class ClusterMode(StrEnum):
    """Whether all kernels of a session share one agent."""

    SINGLE_AGENT = "single-agent"
    MULTI_AGENT = "multi-agent"


class Network(StrEnum):
    """The container's network, in Docker's words."""

    BRIDGE = "bridge"
    NONE = "none"
    HOST = "host"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one kernel reserves and is limited to. `cpu` in cores, `memory_bytes` and `shm_bytes` in bytes, `gpu` whole."""

    cpu: float
    memory_bytes: int
    gpu: int = 0
    shm_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Port:
    """A published port. `host_port` None lets the engine choose."""

    container_port: int
    host_port: int | None = None
    protocol: str = "tcp"


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A named volume at an absolute path in the container."""

    volume: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """All that was asked for, normalised. The same for every kernel of the session."""

    session_id: str
    owner_id: str
    owner: str
    image: str
    """Canonical reference: `docker.io/library/busybox:latest`, or with `@sha256:…`."""
    kind: Kind = Kind.BATCH
    name: str | None = None
    command: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    working_dir: str | None = None
    tty: bool = False
    env: dict[str, str] = field(default_factory=dict)
    resources: Resources
    kernels: int = 1
    cluster_mode: ClusterMode = ClusterMode.SINGLE_AGENT
    pull_policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    allow_stale: bool = False
    """With `always`: run the image that is present, flagged stale, when the registry cannot be asked."""
    platform: str | None = None
    resource_group: str | None = None
    """Only agents of this group; None: of any."""
    agent_labels: dict[str, str] = field(default_factory=dict)
    """Only agents that have all of these."""
    starts_at: datetime | None = None
    """Not placed before."""
    depends_on: tuple[str, ...] = ()
    """Not placed before all of these sessions have ended with exit code 0; an ERROR if one cannot any more."""
    priority: int = 10
    network: Network = Network.BRIDGE
    ports: tuple[Port, ...] = ()
    mounts: tuple[Mount, ...] = ()
    time_limit_seconds: float | None = None
    pull_deadline_seconds: float | None = None
    stop_grace_seconds: float = 10.0
    labels: dict[str, str] = field(default_factory=dict)
    agent: str | None = None
    """Pinned agent id, or None for any."""

    @property
    def has_own_network(self) -> bool:
        """Its kernels share a network that is theirs alone, and find one another there by name."""
        together = self.kernels > 1 and self.cluster_mode is ClusterMode.SINGLE_AGENT
        return together and self.network is Network.BRIDGE


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Who did it, as shown and recorded: a user's id and name, and whether they acted as superadmin."""

    user_id: str
    name: str
    superadmin: bool = False


@dataclass(frozen=True, kw_only=True)
class EndRequest:
    """Payload of the signals `cancel`, `force_cancel` and `terminate`: who, and why if they said it."""

    actor: Actor
    why: str = ""
