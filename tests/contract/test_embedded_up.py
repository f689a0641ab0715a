"""`towline up` and `towline doctor` as people run them."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.rig.eventually import eventually
from towline.embedded.ports import LOOPBACK, free_port

_PROGRAM = (sys.executable, "-m", "towline.cli.main")


@dataclass(frozen=True, kw_only=True)
class Up:
    """A stack that is up. The engine is one that is not there: the stack does without, and says so."""

    process: asyncio.subprocess.Process
    data: Path
    addresses: dict[str, str]


def _arguments(data: Path, *, ui_port: int | None = None) -> tuple[str, ...]:
    ports = {"--api-port": free_port(), "--temporal-port": free_port(), "--temporal-ui-port": ui_port or free_port()}
    options = [f"{option}={port}" for option, port in ports.items()]
    return ("up", f"--data-dir={data}", f"--docker-host=unix://{data}/no-engine", *options)


def _towline(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (*_PROGRAM, *arguments), env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


@asynccontextmanager
async def _running(data: Path) -> AsyncIterator[Up]:
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, *_arguments(data), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout
    said = [""]
    while said[-1] != "READY\n":
        said.append((await process.stdout.readline()).decode())
        assert said[-1], "".join(said)
    try:
        yield Up(process=process, data=data, addresses=json.loads((data / "stack.json").read_text()))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.communicate()


async def test_up_serves_keeps_its_token_and_stops_in_order(tmp_path: Path) -> None:
    tokens = []
    for _ in range(2):
        async with _running(tmp_path) as up:
            assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
            tokens.append((tmp_path / "token").read_text().strip())
            assert (tmp_path / "api-url").read_text().strip() == up.addresses["api"]
            async with httpx.AsyncClient(headers={"Authorization": f"Bearer {tokens[-1]}"}) as client:
                assert (await client.get(f"{up.addresses['api']}/v1/sessions")).json()["sessions"] == []
                assert (await client.get(up.addresses["temporal_ui"], follow_redirects=True)).is_success
        assert up.process.returncode == 0
        assert not (tmp_path / "stack.json").exists()
    assert tokens[0] == tokens[1]


async def test_a_second_up_and_the_doctor_see_the_first(tmp_path: Path) -> None:
    async with _running(tmp_path) as up:
        second = await asyncio.to_thread(_towline, *_arguments(tmp_path))
        assert second.returncode == 1
        assert f"{tmp_path} is in use by a running stack (pid {up.process.pid})" in second.stderr

        doctor = await asyncio.to_thread(_towline, "doctor", "--json", TOWLINE_DATA_DIR=str(tmp_path))
        checks = {check["name"]: check for check in json.loads(doctor.stdout)}
        assert {name for name, check in checks.items() if check["ok"]} >= {"versions", "PostgreSQL", "Temporal", "API"}
        assert not checks["engine"]["ok"]
        assert f"unix://{tmp_path}/no-engine" in checks["engine"]["detail"]
        assert checks["engine"]["advice"]
        assert doctor.returncode == 1


async def test_a_lost_token_is_made_again_on_request(tmp_path: Path) -> None:
    async with _running(tmp_path):
        first = (tmp_path / "token").read_text()
    (tmp_path / "token").unlink()
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, *_arguments(tmp_path), "--new-token", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )

    def is_there() -> str:
        assert (tmp_path / "stack.json").exists()
        return (tmp_path / "token").read_text()

    assert await eventually(is_there, timeout=120) != first
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        refused = _towline(*_arguments(tmp_path, ui_port=taken))
    assert refused.returncode == 1
    assert f"port {taken} (Temporal UI) is in use; choose another with --temporal-ui-port" in refused.stderr
    assert not (tmp_path / "logs").exists()


def test_a_part_that_cannot_start_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("18\n")
    failed = _towline(*_arguments(tmp_path))
    assert failed.returncode == 1
    assert "towline: postgres ended with exit code" in failed.stderr
    assert str(tmp_path / "logs" / "postgres.log") in failed.stderr
    assert "Traceback" not in failed.stderr


def test_bad_settings_are_bad_usage(tmp_path: Path) -> None:
    refused = _towline(*_arguments(tmp_path), TOWLINE_PULL__ATTEMPTS_MAX="-1")
    assert refused.returncode == 2
    assert "pull.attempts_max" in refused.stderr


def test_a_data_directory_that_cannot_be_made_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = _towline(*_arguments(tmp_path / "file" / "data"))
    assert refused.returncode == 2
    assert "cannot hold the data" in refused.stderr


def test_the_doctor_says_what_to_do(tmp_path: Path) -> None:
    environment = {
        "TOWLINE_DATA_DIR": str(tmp_path),
        "TOWLINE_TEMPORAL__ADDRESS": f"{LOOPBACK}:{free_port()}",
        "TOWLINE_DATABASE__URL": f"postgresql://nobody@{LOOPBACK}:{free_port()}/nothing",
        "DOCKER_HOST": f"unix://{tmp_path}/no-engine",
    }
    doctor = _towline("doctor", f"--registry={LOOPBACK}:{free_port()}", **environment)
    assert doctor.returncode == 1
    lines = doctor.stdout.splitlines()
    for name in ("engine", "registry", "PostgreSQL", "Temporal"):
        [number] = [number for number, line in enumerate(lines) if line.startswith(f"✗ {name}: ")]
        assert lines[number + 1].startswith("    ")
