"""Bodies that clients send. Unknown fields are refused."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from api.schemas.fields import (
    AbsolutePath,
    AgentId,
    Argument,
    Environment,
    Image,
    Labels,
    MemorySize,
    Name,
    Platform,
    SessionId,
    Size,
    Text,
    VolumeName,
)
from towline.domain.sessions import (
    ClusterMode,
    Kind,
    Mount,
    Network,
    Port,
    PullPolicy,
    Resources,
    SessionSpec,
)

_YEAR_SECONDS = 366 * 24 * 3600.0
Seconds = Annotated[float, Field(gt=0, le=_YEAR_SECONDS, allow_inf_nan=False)]


def _within_a_year(moment: datetime) -> datetime:
    if moment > datetime.now(UTC) + timedelta(seconds=_YEAR_SECONDS):
        raise ValueError("more than a year from now")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("before the first day that there is in UTC") from None


def _once_each(ids: list[str]) -> list[str]:
    if len(set(ids)) < len(ids):
        raise ValueError("the same session is named twice")
    return ids


class Body(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourcesBody(Body):
    """What one kernel gets. `cpu` in cores; sizes in bytes, or as `512m`, `2g`."""

    cpu: Annotated[float, Field(ge=0.01, le=1024, allow_inf_nan=False)] = 1.0
    memory: MemorySize = 512 * 1024 * 1024
    gpu: Annotated[StrictInt, Field(ge=0, le=64)] = 0
    shm: Size | None = None


class PortBody(Body):
    """A port to publish; `host_port` left out lets the engine choose."""

    container_port: Annotated[StrictInt, Field(ge=1, le=65535)]
    host_port: Annotated[StrictInt, Field(ge=1, le=65535)] | None = None
    protocol: Literal["tcp", "udp"] = "tcp"


class MountBody(Body):
    """A named volume. Host paths cannot be mounted."""

    volume: VolumeName
    target: AbsolutePath
    read_only: StrictBool = False


class SessionBody(Body):
    """What a session is to be."""

    image: Image
    kind: Kind = Kind.BATCH
    name: Name | None = None
    command: Annotated[list[Argument], Field(min_length=1, max_length=4096)] | None = None
    entrypoint: Annotated[list[Argument], Field(min_length=1, max_length=64)] | None = None
    working_dir: AbsolutePath | None = None
    tty: StrictBool = False
    env: Environment = {}
    resources: ResourcesBody = ResourcesBody()
    kernels: Annotated[StrictInt, Field(ge=1, le=64)] = 1
    cluster_mode: ClusterMode = ClusterMode.SINGLE_AGENT
    pull_policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    allow_stale: StrictBool = False
    platform: Platform | None = None
    resource_group: Name | None = None
    agent_labels: Labels = {}
    starts_at: Annotated[AwareDatetime, AfterValidator(_within_a_year)] | None = None
    depends_on: Annotated[list[SessionId], Field(max_length=64), AfterValidator(_once_each)] = []
    priority: Annotated[StrictInt, Field(ge=0, le=100)] = 10
    network: Network = Network.BRIDGE
    ports: Annotated[list[PortBody], Field(max_length=64)] = []
    mounts: Annotated[list[MountBody], Field(max_length=64)] = []
    time_limit: Seconds | None = None
    pull_deadline: Seconds | None = None
    stop_grace: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 10.0
    labels: Labels = {}
    agent: AgentId | None = None

    @model_validator(mode="after")
    def _host_ports_once(self) -> "SessionBody":
        wanted = [(port.host_port, port.protocol) for port in self.ports if port.host_port is not None]
        if len(set(wanted)) < len(wanted):
            raise ValueError("ports: the same host port is asked for twice")
        if self.kernels > 1 and wanted:
            raise ValueError("ports: kernels of one session cannot share a host port; leave host_port out")
        return self

    def hash(self) -> bytes:
        """The same for two bodies that ask for the same."""
        return hashlib.sha256(self.model_dump_json().encode()).digest()

    def spec(self, *, session_id: str, owner_id: str, owner: str) -> SessionSpec:
        """The body as the domain's spec."""
        plain = self.model_dump(exclude={"resources", "ports", "mounts", "time_limit", "pull_deadline", "stop_grace"})
        listed = ("command", "entrypoint", "depends_on")
        plain |= {name: None if plain[name] is None else tuple(plain[name]) for name in listed}
        return SessionSpec(
            session_id=session_id,
            owner_id=owner_id,
            owner=owner,
            resources=Resources(
                cpu=self.resources.cpu,
                memory_bytes=self.resources.memory,
                gpu=self.resources.gpu,
                shm_bytes=self.resources.shm,
            ),
            ports=tuple(Port(**port.model_dump()) for port in self.ports),
            mounts=tuple(Mount(**mount.model_dump()) for mount in self.mounts),
            time_limit_seconds=self.time_limit,
            pull_deadline_seconds=self.pull_deadline,
            stop_grace_seconds=self.stop_grace,
            **plain,
        )


class CancelBody(Body):
    """`force`: show the end at once and clean up behind it. `why` is recorded."""

    force: StrictBool = False
    why: Annotated[Text, Field(max_length=1000)] = ""


class TerminateBody(Body):
    """`why` is recorded."""

    why: Annotated[Text, Field(max_length=1000)] = ""


class CheckAndPullBody(Body):
    """An image to bring to agents."""

    agents: Annotated[list[AgentId], Field(min_length=1, max_length=200)]
    image: Image
    policy: PullPolicy = PullPolicy.IF_NOT_PRESENT


class CancelPullBody(Body):
    """`why` is recorded with every session that waits."""

    why: Annotated[Text, Field(max_length=1000)] = ""


class CordonBody(Body):
    """`why` is recorded."""

    why: Annotated[Text, Field(max_length=1000)] = ""


class DrainBody(Body):
    """`deadline`: seconds from now, after which sessions that still run there are ended; left out, they may come to their own
    end. `why` is recorded, with every session that is ended, too."""

    deadline: Seconds | None = None
    why: Annotated[Text, Field(max_length=1000)] = ""


class UserBody(Body):
    """A user to make. The users of a project share its quota."""

    name: Name
    role: Literal["user", "superadmin"] = "user"
    project: Name | None = None


class MoveBody(Body):
    """The project that a user is to be in; `null`: none."""

    project: Name | None


class TokenBody(Body):
    """A token to make. `expires_at` with its offset from UTC; left out: it does not expire."""

    name: Annotated[Text, Field(max_length=200)] = ""
    expires_at: AwareDatetime | None = None
