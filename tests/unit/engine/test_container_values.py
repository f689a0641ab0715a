"""The engine's JSON as values of ours."""

from datetime import UTC, datetime
from pathlib import Path

import docker
import pytest

from towline.domain.containers import StartContainer
from towline.domain.pulls.stores import StoreKind
from towline.domain.sessions import Network, Port, Resources, SessionSpec
from towline.engine.client import Engine
from towline.engine.container_calls import State, ports_of, time_of
from towline.engine.container_spec import creation
from towline.engine.events import Death
from towline.engine.facts import engine_facts


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-12-01T10:19:16.826418833Z", datetime(2026, 12, 1, 10, 19, 16, 826418, UTC)),
        ("2026-12-01T10:19:16Z", datetime(2026, 12, 1, 10, 19, 16, tzinfo=UTC)),
        ("2026-12-01T12:19:16.5+02:00", datetime(2026, 12, 1, 10, 19, 16, 500000, UTC)),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        (None, None),
    ],
)
def test_times_of_the_engine(text: str | None, time: datetime | None) -> None:
    assert time_of(text) == time


def test_published_ports_are_named_once_for_both_kinds_of_address() -> None:
    published = {
        "80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "32768"}, {"HostIp": "::", "HostPort": "32768"}],
        "53/udp": [{"HostIp": "0.0.0.0", "HostPort": "53"}, {"HostIp": "0.0.0.0", "HostPort": "5353"}],
        "9/tcp": None,
    }
    assert ports_of({"NetworkSettings": {"Ports": published}}) == {"80/tcp": (32768,), "53/udp": (53, 5353)}
    assert ports_of({}) == {}


def test_a_state_that_is_not_known_is_none_of_those_that_are() -> None:
    assert (State.of("exited"), State.of("configured")) == (State.EXITED, State.OTHER)


def test_a_death_is_told_by_its_event_alone() -> None:
    event = {
        "Action": "die",
        "Actor": {
            "ID": "abc",
            "Attributes": {"exitCode": "137", "io.towline.session": "ses-1", "io.towline.kernel": "2"},
        },
        "timeNano": 1_764_584_356_500_000_000,
    }
    assert Death.of(event) == Death(
        container_id="abc",
        session_id="ses-1",
        kernel=2,
        exit_code=137,
        at=datetime.fromtimestamp(1_764_584_356.5, UTC),
    )


def _creation(store: StoreKind = StoreKind.CLASSIC, **changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "session_id": "ses-0000000000000000",
        "owner_id": "usr-1",
        "owner": "ann",
        "image": "docker.io/library/busybox:latest",
        "resources": Resources(cpu=1, memory_bytes=64 << 20),
    }
    spec = SessionSpec(**{**plain, **changes})  # type: ignore[arg-type]  # the fields are the test's own
    request = StartContainer(spec=spec, kernel=0, agent_id="a1", image_ref="sha256:1")
    client = docker.APIClient(base_url="unix:///nowhere", version="1.41")
    return creation(client, request, fleet_id="flt-1", cpu_max=8, store=store)


def test_ports_are_published_on_all_addresses_and_one_may_be_published_twice() -> None:
    ports = (
        Port(container_port=80, host_port=8080),
        Port(container_port=80, host_port=8081),
        Port(container_port=53, protocol="udp"),
    )
    asked = _creation(ports=ports)
    host = asked["host_config"]
    assert isinstance(host, dict)
    assert host["PortBindings"] == {
        "80/tcp": [{"HostIp": "", "HostPort": "8080"}, {"HostIp": "", "HostPort": "8081"}],
        "53/udp": [{"HostIp": "", "HostPort": ""}],
    }


@pytest.mark.parametrize(
    ("network", "mode"), [(Network.BRIDGE, "default"), (Network.NONE, "none"), (Network.HOST, "host")]
)
def test_the_bridge_is_asked_for_by_the_name_that_every_engine_takes(network: Network, mode: str) -> None:
    host = _creation(network=network)["host_config"]
    assert isinstance(host, dict)
    assert host["NetworkMode"] == mode


def test_podman_keeps_its_own_log() -> None:
    host = _creation(store=StoreKind.PODMAN)["host_config"]
    assert isinstance(host, dict)
    assert "LogConfig" not in host


def test_our_labels_cannot_be_taken_over() -> None:
    labels = _creation(labels={"io.towline.session": "ses-other", "team": "red"})["labels"]
    assert isinstance(labels, dict)
    assert (labels["io.towline.session"], labels["team"]) == ("ses-0000000000000000", "red")


class _Informed(Engine):
    """An engine of which only `docker info` is known."""

    def __init__(self, info: dict[str, object]) -> None:
        super().__init__("unix:///nowhere")
        self._info = info

    async def probe(self) -> None:
        """It answers."""


_INFO: dict[str, object] = {
    "NCPU": 4,
    "MemTotal": 8 << 30,
    "OSType": "linux",
    "Architecture": "x86_64",
    "ServerVersion": "20.10.24",
    "Runtimes": {"runc": {}},
}


async def test_capacity_is_detected_or_set() -> None:
    detected = await engine_facts(_Informed(_INFO), agent_id="a1", boot_id="b1")
    assert (detected.cpu, detected.memory_bytes, detected.gpu) == (4.0, 8 << 30, 0)
    assert (detected.platform, detected.engine_version, detected.store_kind) == ("linux/amd64", "20.10.24", "classic")
    given = await engine_facts(
        _Informed(_INFO), agent_id="a1", boot_id="b1", cpu=0.5, memory_bytes=1, gpu=2, labels={"zone": "x"}
    )
    assert (given.cpu, given.memory_bytes, given.gpu, given.labels) == (0.5, 1, 2, {"zone": "x"})


@pytest.mark.parametrize(("runtime", "count"), [("nvidia", 2), ("runc", 0)])
async def test_gpus_count_only_with_a_runtime_for_them(tmp_path: Path, runtime: str, count: int) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    informed = _Informed({**_INFO, "Runtimes": {runtime: {}}})
    assert (await engine_facts(informed, agent_id="a1", boot_id="b1", devices=tmp_path)).gpu == count
