"""What `docker login` has left on the agent's host: the agent's own right to private images."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

import docker.auth
from docker.errors import DockerException

_log = logging.getLogger(__name__)

_HELPER_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Credential:
    """For one registry: a name and a password, or an identity token that only the engine can use."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    def for_engine(self) -> dict[str, str]:
        """As the engine takes it in `X-Registry-Auth`."""
        if self.identity_token:
            return {"identitytoken": self.identity_token}
        return {"username": self.username, "password": self.password}


class HostCredentials:
    """The Docker configuration of the user that the agent runs as. Read anew each time: a new login counts at once."""

    async def of(self, registry: str) -> Credential | None:
        """The credential for a registry's host; None where there is none, or its helper does not answer."""
        try:
            async with asyncio.timeout(_HELPER_SECONDS):
                return await asyncio.to_thread(_look_up, registry)
        except (DockerException, OSError, ValueError, TimeoutError) as error:
            _log.warning("no credential for %s: %s", registry, error or type(error).__name__)
            return None


def _look_up(registry: str) -> Credential | None:
    found = docker.auth.load_config().resolve_authconfig(registry)
    if not found:
        return None
    fields = {key.lower(): value for key, value in found.items() if isinstance(value, str)}
    if token := fields.get("identitytoken"):
        return Credential(identity_token=token)
    if username := fields.get("username"):
        return Credential(username=username, password=fields.get("password", ""))
    return None
