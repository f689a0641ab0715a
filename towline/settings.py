"""The settings of a process: defaults, then a TOML file, then `TOWLINE_*` variables, each later one winning.

A variable names a group and a field: `TOWLINE_AGENT__ID=gpu-1`, `TOWLINE_PULL__THRESHOLDS__STALL_SECONDS=0`. Lists and
tables are given as JSON. The file is `$TOWLINE_CONFIG`, or `towline/config.toml` under the user's configuration directory.
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import platformdirs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from towline.domain.pulls.thresholds import Thresholds
from towline.embedded.places import default_data_directory
from towline.errors import FieldProblem, InvalidInputError

_PREFIX: Final = "TOWLINE_"
_NOT_OURS: Final = frozenset({"TOWLINE_CONFIG", "TOWLINE_API_URL", "TOWLINE_TOKEN"})
"""Variables of the same prefix that are no settings of a server process."""

_KEY_BYTES: Final = 32

Port = Annotated[int, Field(ge=1, le=65535)]


def _usable_key(key: SecretStr) -> SecretStr:
    try:
        length = len(base64.b64decode(key.get_secret_value(), altchars=b"-_", validate=True))
    except ValueError:
        length = 0
    if length != _KEY_BYTES:
        raise ValueError(f"a key is {_KEY_BYTES} bytes in URL-safe base64")
    return key


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DatabaseSettings(_Group):
    """Where records are kept. `url`: a libpq URL, `postgresql://…`."""

    url: str = Field(default="postgresql:///towline", pattern=r"^postgres(ql)?(\+psycopg)?://")


class TemporalSettings(_Group):
    """Temporal's frontend. `address`: host:port."""

    address: str = Field(default="127.0.0.1:7233", pattern=r"^\S+:\d+$")
    namespace: str = Field(default="default", min_length=1)


class ApiSettings(_Group):
    """Where the HTTP API listens."""

    host: str = "127.0.0.1"
    port: Port = 8470


class AgentSettings(_Group):
    """One agent worker and its engine.

    `docker_host`: as in DOCKER_HOST; None follows the environment. `cpu` (cores), `memory_bytes` and `gpu` override what is
    detected. At most `unique_pulls_max` images are pulled and `starts_in_flight_max` containers started at once.
    `look_every_seconds`: how often containers and sessions are compared, behind the engine's events. After `grace_seconds` of
    silence the agent is lost, and after `running_grace_seconds` more the sessions that ran on it are given up.
    """

    id: str = Field(default="local", pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")
    docker_host: str | None = None
    cpu: float | None = Field(default=None, gt=0, le=4096, allow_inf_nan=False)
    memory_bytes: int | None = Field(default=None, gt=0, le=2**50)
    gpu: int | None = Field(default=None, ge=0, le=64)
    labels: Mapping[str, str] = Field(default_factory=dict)
    resource_group: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    grace_seconds: float = Field(default=20.0, ge=0, le=3600)
    running_grace_seconds: float = Field(default=300.0, ge=0, le=7 * 24 * 3600)
    unique_pulls_max: int = Field(default=3, ge=1, le=100)
    starts_in_flight_max: int = Field(default=3, ge=1, le=100)
    look_every_seconds: float = Field(default=30.0, ge=1, le=3600)


class PullSettings(_Group):
    """How long a pull is waited for. The limits are those of `Thresholds`, by their names, where 0 means never."""

    attempts_max: int = Field(default=3, ge=1, le=100)
    thresholds: Thresholds = Thresholds()


class SecretSettings(_Group):
    """Fernet keys (32 bytes, URL-safe base64): the first one seals, all of them open. Without one, nothing can be sealed."""

    keys: tuple[Annotated[SecretStr, AfterValidator(_usable_key)], ...] = ()


class Settings(BaseSettings):
    """All settings of one process; built once by `load_settings`, and handed on."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    database: DatabaseSettings = DatabaseSettings()
    temporal: TemporalSettings = TemporalSettings()
    api: ApiSettings = ApiSettings()
    agent: AgentSettings = AgentSettings()
    pull: PullSettings = PullSettings()
    secrets: SecretSettings = SecretSettings()
    data_dir: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] = Field(
        default_factory=default_data_directory
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Variables over the file; no dotenv, no secrets directory."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=_config_file())


def load_settings() -> Settings:
    """Read the settings. Raises `InvalidInputError` naming each refused field (a process then ends with exit code 2)."""
    _refuse_unknown_variables()
    try:
        return Settings()
    except ValidationError as error:
        problems = tuple(
            FieldProblem(field=".".join(str(part) for part in problem["loc"]), problem=problem["msg"])
            for problem in error.errors(include_input=False, include_url=False)
        )
    except ValueError as error:  # TOML or JSON that cannot be read.
        problems = (FieldProblem(field="settings", problem=str(error)),)
    lines = "\n".join(f"  {problem.field}: {problem.problem}" for problem in problems)
    raise InvalidInputError(f"bad settings:\n{lines}", fields=problems)


def _config_file() -> Path:
    given = os.environ.get("TOWLINE_CONFIG")
    if given is None:
        return platformdirs.user_config_path("towline") / "config.toml"
    if not Path(given).is_file():
        raise ValueError(f"TOWLINE_CONFIG names {given}, which is not a file")
    return Path(given)


def _refuse_unknown_variables() -> None:
    """A mistyped variable (`TOWLINE_DATABASE_URL`, `TOWLINE_AGNET__ID`) would be passed over in silence otherwise."""
    names = [name for name in os.environ if name.startswith(_PREFIX) and name not in _NOT_OURS]
    if unknown := [name for name in names if _means_a_setting(name) and not _is_a_setting(name)]:
        problems = tuple(FieldProblem(field=name, problem="no such setting") for name in sorted(unknown))
        raise InvalidInputError(f"bad settings: no such setting: {', '.join(sorted(unknown))}", fields=problems)


def _is_a_setting(variable: str) -> bool:
    return variable.removeprefix(_PREFIX).partition("__")[0].lower() in Settings.model_fields


def _means_a_setting(variable: str) -> bool:
    word = variable.removeprefix(_PREFIX).partition("_")[0].lower()
    return "__" in variable or word in Settings.model_fields
