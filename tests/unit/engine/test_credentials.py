"""The agent's own credentials: found where `docker login` left them, and never printed."""

import base64
import json
from pathlib import Path

import pytest

from towline.engine.credentials import Credential, HostCredentials
from towline.engine.pull_stream import PullRequest

_SECRET = "s3cret-of-the-registry"


@pytest.fixture
def logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    packed = base64.b64encode(f"ann:{_SECRET}".encode()).decode()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"auths": {"127.0.0.1:5000": {"auth": packed}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return config


async def test_a_login_counts_for_its_registry_alone(logged_in: Path) -> None:
    found = await HostCredentials().of("127.0.0.1:5000")
    assert found is not None
    assert found.for_engine() == {"username": "ann", "password": _SECRET}
    assert await HostCredentials().of("127.0.0.1:5001") is None


async def test_a_new_login_counts_at_once(logged_in: Path) -> None:
    logged_in.write_text("{}")
    assert await HostCredentials().of("127.0.0.1:5000") is None


async def test_a_broken_file_is_no_credential(logged_in: Path) -> None:
    logged_in.write_text("{not json")
    assert await HostCredentials().of("127.0.0.1:5000") is None


@pytest.mark.parametrize(
    "credential", [Credential(username="ann", password=_SECRET), Credential(identity_token=_SECRET)]
)
def test_a_credential_is_not_printed(credential: Credential) -> None:
    request = PullRequest(repository="r", reference="1", credential=credential.for_engine())
    assert _SECRET not in f"{credential!r} {credential} {request!r}"
