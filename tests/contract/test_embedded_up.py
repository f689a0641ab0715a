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
import pytest

from towline.embedded.ports import LOOPBACK, free_port
from towline.store.bootstrap import ensure_first_token

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


@pytest.fixture(scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with _running(tmp_path_factory.mktemp("up")) as up:
        yield up


async def test_up_serves_with_the_token_that_it_left(up: Up) -> None:
    assert (up.data / "token").stat().st_mode & 0o777 == 0o600
    assert (up.data / "api-url").read_text().strip() == up.addresses["api"]
    token = (up.data / "token").read_text().strip()
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client:
        assert (await client.get(f"{up.addresses['api']}/v1/sessions")).json()["sessions"] == []
        assert (await client.get(up.addresses["temporal_ui"], follow_redirects=True)).is_success


async def test_a_second_up_on_the_same_data_is_refused_by_name(up: Up) -> None:
    second = await asyncio.to_thread(_towline, *_arguments(up.data))
    assert second.returncode == 1
    assert f"{up.data} is in use by a running stack (pid {up.process.pid})" in second.stderr


async def test_the_doctor_looks_at_the_running_stack(up: Up) -> None:
    doctor = await asyncio.to_thread(_towline, "doctor", "--json", TOWLINE_DATA_DIR=str(up.data))
    checks = {check["name"]: check for check in json.loads(doctor.stdout)}
    assert {name for name, check in checks.items() if check["ok"]} >= {"versions", "PostgreSQL", "Temporal", "API"}
    assert not checks["engine"]["ok"]
    assert f"unix://{up.data}/no-engine" in checks["engine"]["detail"]
    assert checks["engine"]["advice"]
    assert doctor.returncode == 1


async def test_ctrl_c_stops_it_and_the_next_up_has_the_same_token(up: Up) -> None:
    token = (up.data / "token").read_text()
    up.process.send_signal(signal.SIGINT)
    assert await up.process.wait() == 0
    assert not (up.data / "stack.json").exists()
    async with _running(up.data):
        assert (up.data / "token").read_text() == token


def test_a_lost_token_is_made_again_on_request_only(postgres_url: str) -> None:
    first = ensure_first_token(postgres_url)
    assert first
    assert ensure_first_token(postgres_url) is None
    assert ensure_first_token(postgres_url, another=True) not in (None, first)


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
