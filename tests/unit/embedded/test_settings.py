"""Settings: where they come from, and what is refused."""

import base64
from pathlib import Path

import pytest

from towline.errors import InvalidInputError
from towline.settings import load_settings


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TOWLINE_CONFIG", "TOWLINE_DATA_DIR", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    settings = load_settings()
    assert (settings.api.host, settings.api.port) == ("127.0.0.1", 8470)
    assert settings.agent.unique_pulls_max == 3
    assert settings.pull.thresholds.stall_seconds is None
    assert settings.data_dir.is_absolute()


def test_variables_win_over_the_file_field_by_field(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "towline.toml"
    file.write_text('[agent]\nid = "gpu-1"\ncpu = 4\n[pull.thresholds]\nfloor_bytes_per_s = 5\n')
    monkeypatch.setenv("TOWLINE_CONFIG", str(file))
    monkeypatch.setenv("TOWLINE_AGENT__CPU", "2.5")
    monkeypatch.setenv("TOWLINE_AGENT__LABELS", '{"zone": "a"}')
    monkeypatch.setenv("TOWLINE_PULL__THRESHOLDS__STALL_SECONDS", "0")
    settings = load_settings()
    assert (settings.agent.id, settings.agent.cpu, settings.agent.labels) == ("gpu-1", 2.5, {"zone": "a"})
    assert settings.pull.thresholds.floor_bytes_per_s == 5
    assert settings.pull.thresholds.stall_seconds == 0


def test_the_file_of_the_user_is_found(tmp_path: Path) -> None:
    (tmp_path / "towline").mkdir()
    (tmp_path / "towline" / "config.toml").write_text("[api]\nport = 9000\n")
    assert load_settings().api.port == 9000


def test_settings_are_frozen() -> None:
    api = load_settings().api
    with pytest.raises(ValueError, match="frozen"):
        setattr(api, "port", 1)  # noqa: B010 (a plain assignment is what the type checker refuses already)


@pytest.mark.parametrize(
    ("variable", "value", "field"),
    [
        ("TOWLINE_PULL__THRESHOLDS__STALL_SECONDS", "-1", "pull.thresholds"),
        ("TOWLINE_PULL__THRESHOLDS__STALL_SECONDS", "nan", "pull.thresholds"),
        ("TOWLINE_PULL__THRESHOLDS__STALL_SECONDS", "soon", "pull.thresholds.stall_seconds"),
        ("TOWLINE_PULL__ATTEMPTS_MAX", "0", "pull.attempts_max"),
        ("TOWLINE_API__PORT", "70000", "api.port"),
        ("TOWLINE_AGENT__ID", "a/b", "agent.id"),
        ("TOWLINE_AGENT__CPU", "inf", "agent.cpu"),
        ("TOWLINE_AGENT__LABELS", "zone=a", "settings"),
        ("TOWLINE_AGENT__IDD", "x", "agent.idd"),
        ("TOWLINE_AGNET__ID", "x", "TOWLINE_AGNET__ID"),
        ("TOWLINE_DATABASE_URL", "postgresql:///x", "TOWLINE_DATABASE_URL"),
        ("TOWLINE_DATABASE__URL", "sqlite:///x", "database.url"),
        ("TOWLINE_SECRETS__KEYS", '["short"]', "secrets.keys.0"),
        ("TOWLINE_CONFIG", "/nowhere/towline.toml", "settings"),
    ],
)
def test_what_is_refused_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, field: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInputError) as refused:
        load_settings()
    assert [problem.field for problem in refused.value.fields] == [field]
    assert field in refused.value.message


@pytest.mark.parametrize("text", ["[api\n", "[ghost]\nx = 1\n", "[api]\nport = 'many'\n"])
def test_a_bad_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    file = tmp_path / "towline.toml"
    file.write_text(text)
    monkeypatch.setenv("TOWLINE_CONFIG", str(file))
    with pytest.raises(InvalidInputError, match="bad settings"):
        load_settings()


def test_a_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    key = base64.urlsafe_b64encode(bytes(range(32))).decode()
    monkeypatch.setenv("TOWLINE_SECRETS__KEYS", f'["{key}"]')
    settings = load_settings()
    assert settings.secrets.keys[0].get_secret_value() == key
    assert key not in repr(settings)


def test_a_refused_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWLINE_SECRETS__KEYS", '["hunter2-hunter2"]')
    with pytest.raises(InvalidInputError) as refused:
        load_settings()
    assert "hunter2" not in str(refused.value)
