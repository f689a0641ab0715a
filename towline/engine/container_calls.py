"""Calls about containers: every failure is typed, and what is so already is a success."""

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from urllib3.exceptions import HTTPError

from towline.engine.client import Engine, unavailable
from towline.engine.failures import container_failure

T = TypeVar("T")

_ZERO_TIME: Final = "0001"
_REMOVAL_SECONDS: Final = 30


class State(StrEnum):
    """A container's state in the engine's words."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"
    OTHER = "other"

    @classmethod
    def of(cls, text: str) -> "State":
        """From the engine's word, `OTHER` for one that is not known."""
        return next((state for state in cls if state == text), cls.OTHER)


async def ask(engine: Engine, call: Callable[[docker.APIClient], T], *, timeout_seconds: float | None = None) -> T:
    """As `Engine.call`, and whatever goes wrong is an `EngineError`. An answer that cannot be read counts as none."""
    try:
        return await engine.call(call, timeout_seconds=timeout_seconds)
    except APIError as error:
        raise container_failure(text_of(error)) from error
    except (DockerException, requests.RequestException, HTTPError) as error:
        raise unavailable(engine.url, error) from error


def text_of(error: APIError) -> str:
    """What the engine said, in its own words."""
    return str(error.explanation or error)


def inspect(client: docker.APIClient, name_or_id: str) -> dict[str, Any] | None:
    """All that the engine knows of a container, None where there is none."""
    try:
        found: dict[str, Any] = client.inspect_container(name_or_id)
    except NotFound:
        return None
    return found


def has_labels(found: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether an inspected container carries all of `labels`."""
    has = found["Config"].get("Labels") or {}
    return all(has.get(key) == value for key, value in labels.items())


def remove(client: docker.APIClient, container_id: str) -> None:
    """Remove a container, running or not, with its anonymous volumes. Returns when it is gone."""
    try:
        client.remove_container(container_id, v=True, force=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != HTTPStatus.CONFLICT:
            raise
        # Somebody else is removing it. It shall be gone when this returns, as after a removal of our own.
        with contextlib.suppress(NotFound):
            client.wait(container_id, timeout=_REMOVAL_SECONDS, condition="removed")


def time_of(text: str | None) -> datetime | None:
    """The engine's RFC 3339 time with nanoseconds, as an aware datetime; None for its zero time."""
    if not text or text.startswith(_ZERO_TIME):
        return None
    return datetime.fromisoformat(text)


def ports_of(found: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The published ports of an inspected container: `80/tcp` to the host's ports."""
    published = (found.get("NetworkSettings") or {}).get("Ports") or {}
    return {
        port: tuple(sorted({int(binding["HostPort"]) for binding in bindings}))
        for port, bindings in published.items()
        if bindings
    }
