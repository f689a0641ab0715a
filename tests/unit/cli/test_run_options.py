"""What is typed becomes one request."""

from pathlib import Path
from typing import Any

import pytest

from api.schemas.requests import SessionBody
from towline.cli.run_options import RunOptions, request_body
from towline.errors import InvalidInputError


def body(**options: Any) -> dict[str, Any]:
    return request_body(RunOptions(image="busybox", **options), {"MINE": "from me"})


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({}, "kind", "batch"),
        ({"interactive": True}, "kind", "interactive"),
        ({"command": ["--", "sh", "-c", "ls"]}, "command", ["sh", "-c", "ls"]),
        ({"command": ["sh", "--", "x"]}, "command", ["sh", "--", "x"]),
        ({"command": ["--"]}, "command", None),
        ({"env": ["A=1", "B=", "C=a=b", "MINE", "NOBODYS"]}, "env", {"A": "1", "B": "", "C": "a=b", "MINE": "from me"}),
        ({"env": ["A=1", "A=2"]}, "env", {"A": "2"}),
        ({"label": ["a=1", "b"]}, "labels", {"a": "1", "b": ""}),
        ({"publish": ["80"]}, "ports", [{"container_port": 80, "host_port": None, "protocol": "tcp"}]),
        ({"publish": ["8080:80/udp"]}, "ports", [{"container_port": 80, "host_port": 8080, "protocol": "udp"}]),
        ({"volume": ["data:/d"]}, "mounts", [{"volume": "data", "target": "/d", "read_only": False}]),
        ({"volume": ["data:/d:ro"]}, "mounts", [{"volume": "data", "target": "/d", "read_only": True}]),
        ({"time_limit": "90"}, "time_limit", 90.0),
        ({"time_limit": "1h30m"}, "time_limit", 5400.0),
        ({"pull_deadline": "2.5s"}, "pull_deadline", 2.5),
        ({"stop_grace": "1m"}, "stop_grace", 60.0),
        ({"multi_agent": True}, "cluster_mode", "multi-agent"),
        ({"entrypoint": "/bin/sh"}, "entrypoint", ["/bin/sh"]),
        ({"agent_label": ["zone=a", "ssd"]}, "agent_labels", {"zone": "a", "ssd": ""}),
    ],
)
def test_an_option_becomes_a_field(options: dict[str, Any], field: str, value: Any) -> None:
    assert body(**options)[field] == value


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"publish": ["http"]}, "publish"),
        ({"publish": ["a:80"]}, "publish"),
        ({"volume": ["data"]}, "volume"),
        ({"volume": ["data:/d:rx"]}, "volume"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"time_limit": ""}, "time_limit"),
        ({"time_limit": "-5"}, "time_limit"),
        ({"stop_grace": "5x"}, "stop_grace"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        body(**options)
    assert [problem.field for problem in refused.value.fields] == [field]
    assert field in refused.value.message


def test_files_of_variables_come_before_single_ones(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("# a comment\n\nA=1\nB=1\nMINE\n")
    second.write_text("B=2\nC=2\n")
    assert body(env_file=[first, second], env=["C=3"])["env"] == {"A": "1", "B": "2", "C": "3", "MINE": "from me"}


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="env_file"):
        body(env_file=[path])


def test_the_api_takes_what_the_options_make() -> None:
    everything = body(
        command=["sh"],
        name="x",
        interactive=True,
        env=["A=1"],
        gpus=1,
        shm="64m",
        kernels=2,
        multi_agent=True,
        pull_policy="always",
        allow_stale=True,
        network="none",
        publish=["80"],
        volume=["data:/d:ro"],
        label=["a=1"],
        agent="a1",
        resource_group="gpu",
        agent_label=["zone=a"],
        priority=50,
        starts_at="2026-12-31T18:00:00+01:00",
        depends_on=["ses-0123456789abcdef"],
        time_limit="1h",
        pull_deadline="10m",
        platform="linux/arm64",
        entrypoint="/bin/sh",
        workdir="/w",
        tty=True,
    )
    assert set(everything) == set(SessionBody.model_fields)
    taken = SessionBody.model_validate(everything)
    assert taken.resources.memory == 512 * 2**20
    assert SessionBody.model_validate(body()) == SessionBody.model_validate({"image": "busybox"})
