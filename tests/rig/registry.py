"""A real registry: Debian's `docker-registry` (distribution 2.8) on a free loopback port."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

from tests.rig.eventually import eventually_sync
from tests.rig.ports import free_port
from towline.embedded.children import Child, Command

_READY_SECONDS: Final = 20.0


@dataclass(frozen=True, kw_only=True)
class Account:
    """A user of a registry. `password_hash` is bcrypt, the only kind that the registry reads."""

    user: str
    password: str
    password_hash: str

    @property
    def auth(self) -> tuple[str, str]:
        """The pair that httpx takes."""
        return (self.user, self.password)


TESTER: Final = Account(
    user="tester",
    password="open sesame",
    password_hash="$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW",
)
"""The account for registries that ask for one; its hash is kept here because Python has no bcrypt of its own."""


class RegistryProcess:
    """A running registry, from `start` (or entering the context) to `stop`; what was pushed stays in `storage`.

    With `account` it asks for basic credentials. Deleting manifests is allowed. A stopped registry may be started again, on the same port.
    """

    def __init__(self, storage: Path, *, account: Account | None = None, port: int | None = None) -> None:
        self.port: Final = port or free_port()
        self.account: Final = account
        self._directory: Final = storage
        self._child: Child | None = None

    @property
    def host(self) -> str:
        """`127.0.0.1:PORT`, as it stands in an image reference."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://{self.host}"

    def start(self) -> None:
        """Start it and wait until it answers. Raises `AssertionError` with its last words when it does not."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "config.json"
        config.write_text(json.dumps(self._config()))
        command = Command(name="registry", argv=("/usr/bin/docker-registry", "serve", str(config)), cwd=self._directory)
        self._child = Child.start(command, self._directory / "registry.log")
        try:
            eventually_sync(self._answers, timeout=_READY_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it; nothing happens when it does not run."""
        if self._child is not None:
            self._child.stop_and_wait()
            self._child = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _config(self) -> dict[str, object]:
        config: dict[str, object] = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self._directory / "data")}, "delete": {"enabled": True}},
            "http": {"addr": self.host},
        }
        if self.account is not None:
            htpasswd = self._directory / "htpasswd"
            htpasswd.write_text(f"{self.account.user}:{self.account.password_hash}\n")
            config["auth"] = {"htpasswd": {"realm": "registry", "path": str(htpasswd)}}
        return config

    def _answers(self) -> None:
        assert self._child is not None
        if self._child.returncode is not None:
            raise RuntimeError(f"docker-registry ended: {self._child.last_words()}")
        try:
            status = httpx.get(f"{self.url}/v2/", timeout=2, trust_env=False).status_code
        except httpx.TransportError as error:
            raise AssertionError(f"no answer yet: {error}") from error
        assert status == (200 if self.account is None else 401)
