"""docker-compose.temporal.yml, read by a real Compose, and what it tells our program."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from towline.embedded.temporal import _DYNAMIC_CONFIG
from towline.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.temporal.yml"
ONE_SHOT = {"temporal-schema", "temporal-namespace", "migrate"}
KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


def compose(env_file: Path) -> subprocess.CompletedProcess[str]:
    """`config` of the Compose that is here: it reads, checks against its schema, fills in and prints."""
    program = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    command = [*program, "--env-file", str(env_file), "-f", str(FILE), "config"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/usr/local/bin"})


def filled_in(values: str) -> str:
    """The example file with every empty value given."""
    example = (ROOT / "deploy" / "towline.env.example").read_text()
    return re.sub(r"^(\w+)=$", rf"\1={values}", example, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every service as Compose understands it."""
    env_file = tmp_path_factory.mktemp("compose") / "towline.env"
    env_file.write_text(filled_in(KEY))
    done = compose(env_file)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def test_it_has_temporal_both_databases_and_the_three_roles(services: dict[str, Any]) -> None:
    assert set(services) == ONE_SHOT | {
        "temporal",
        "temporal-postgres",
        "temporal-ui",
        "postgres",
        "api",
        "control",
        "agent",
    }
    assert services["agent"]["volumes"] == ["/var/run/docker.sock:/var/run/docker.sock:rw"]
    assert not any("DATABASE" in name for name in services["agent"]["environment"])


def test_every_image_has_a_version(services: dict[str, Any]) -> None:
    for service in services.values():
        assert re.search(r":\d+\.\d+", service["image"]), service["image"]


def test_what_stays_up_is_started_again_and_watched(services: dict[str, Any]) -> None:
    for name in set(services) - ONE_SHOT:
        assert services[name]["restart"] == "unless-stopped", name
        assert "healthcheck" in services[name] or name == "temporal-ui", name
    for name in ONE_SHOT:
        assert services[name]["restart"] == "on-failure", name


def test_nothing_is_open_to_other_machines(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(str(port).startswith("127.0.0.1:") for port in ports)


def test_a_secret_that_is_not_set_is_named(tmp_path: Path) -> None:
    env_file = tmp_path / "towline.env"
    env_file.write_text(filled_in(""))
    done = compose(env_file)
    assert done.returncode != 0
    assert "set it in deploy/towline.env" in done.stderr


@pytest.mark.parametrize("name", ["migrate", "api", "control", "agent"])
def test_our_program_takes_the_settings(
    services: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable, value in services[name]["environment"].items():
        monkeypatch.setenv(variable, str(value))
    settings = load_settings()
    assert settings.temporal.address == "temporal:7233"
    assert settings.secrets.keys[0].get_secret_value() == KEY


def test_the_server_is_tuned_as_the_embedded_one() -> None:
    file = yaml.safe_load((ROOT / "deploy" / "temporal-dynamic-config.yaml").read_text())
    values = {key: constraints[0]["value"] for key, constraints in file.items()}
    embedded = dict(line.split("=", 1) for line in _DYNAMIC_CONFIG)
    assert values == {key: json.loads(value) for key, value in embedded.items()}


def test_the_image_gets_the_tested_versions() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+==\S+", (ROOT / name).read_text(), re.MULTILINE))

    assert pins("requirements.server.lock") < pins("requirements.lock")
    assert not any(pin.startswith(("pytest==", "pyright==")) for pin in pins("requirements.server.lock"))
