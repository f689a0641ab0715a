"""What a stack is made of, without starting it."""

import socket
from pathlib import Path

import pytest

from towline.embedded.parts import Part
from towline.embedded.places import sealing_key, write_private
from towline.embedded.ports import LOOPBACK, PortClaim, PortTakenError, free_port, refuse_taken
from towline.embedded.stack import AgentPlan, Stack, plan_agents
from towline.embedded.supervisor import RestartPolicy


@pytest.mark.parametrize(
    ("count", "hosts", "planned"),
    [
        (1, [], [("local", None)]),
        (1, ["unix:///a"], [("local", "unix:///a")]),
        (2, [], [("local-1", None), ("local-2", None)]),
        (1, ["unix:///a", "unix:///b"], [("local-1", "unix:///a"), ("local-2", "unix:///b")]),
        (3, ["unix:///a", "unix:///b"], [("local-1", "unix:///a"), ("local-2", "unix:///b"), ("local-3", "unix:///a")]),
    ],
)
def test_agents_are_dealt_out_to_engines(count: int, hosts: list[str], planned: list[tuple[str, str | None]]) -> None:
    assert [(plan.id, plan.docker_host) for plan in plan_agents(count, hosts)] == planned


def test_an_agent_gets_no_database(tmp_path: Path) -> None:
    stack = Stack(directory=tmp_path, agents=(AgentPlan(id="local", docker_host="unix:///a"),), keys=("key",))
    parts = {part.name: part.prepare() for stage in stack.stages()[2:] for part in stage if isinstance(part, Part)}
    assert set(parts) == {"api", "control", "agent-local"}
    assert "TOWLINE_DATABASE__URL" in parts["api"].environment
    assert "TOWLINE_DATABASE__URL" not in parts["agent-local"].environment
    assert parts["agent-local"].environment["TOWLINE_AGENT__DOCKER_HOST"] == "unix:///a"


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1")],
)
def test_clients_get_an_address_that_they_can_reach(tmp_path: Path, host: str, url: str) -> None:
    assert Stack(directory=tmp_path, agents=(), keys=(), api_host=host, api_port=1).api_url == url


def test_every_taken_port_is_named_with_its_option() -> None:
    free = free_port()
    with socket.create_server((LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        claims = [
            PortClaim(port=taken, part="Temporal UI", option="--temporal-ui-port"),
            PortClaim(port=free, part="the API", option="--api-port"),
            PortClaim(port=free, part="Temporal", option="--temporal-port"),
        ]
        with pytest.raises(PortTakenError) as refused:
            refuse_taken(claims)
    assert refused.value.message.splitlines() == [
        f"port {taken} (Temporal UI) is in use; choose another with --temporal-ui-port",
        f"port {free} is wanted by the API and Temporal; change --temporal-port",
    ]


def test_a_private_file_is_private_and_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_sealing_key_stays(tmp_path: Path) -> None:
    assert sealing_key(tmp_path) == sealing_key(tmp_path)
    assert (tmp_path / "sealing-key").stat().st_mode & 0o777 == 0o600


def test_restarts_wait_longer_and_longer_up_to_a_limit() -> None:
    policy = RestartPolicy(first_seconds=0.5, most_seconds=30)
    assert [policy.delay_seconds(deaths) for deaths in (1, 2, 3, 7, 1000)] == [0.5, 1, 2, 30, 30]
