"""The engine's events about containers that died, as they come."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

import requests
from docker.errors import DockerException
from urllib3.exceptions import HTTPError

from towline.domain.ids import LABEL_KERNEL, LABEL_SESSION
from towline.engine.connection import abortable_client

_log = logging.getLogger(__name__)

_REPLAYED_SECONDS: Final = 5


@dataclass(frozen=True, kw_only=True)
class Death:
    """What an event says: enough for a container that is gone before it could be looked at."""

    container_id: str
    session_id: str
    kernel: int
    exit_code: int | None = None
    at: datetime | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """From an event as the engine sends it. Raises `KeyError` or `ValueError` for one that lacks our labels."""
        attributes = event["Actor"]["Attributes"]
        code = attributes.get("exitCode")
        return cls(
            container_id=event["Actor"]["ID"],
            session_id=attributes[LABEL_SESSION],
            kernel=int(attributes[LABEL_KERNEL]),
            exit_code=None if code is None else int(code),
            at=datetime.fromtimestamp(event["timeNano"] / 1e9, UTC) if "timeNano" in event else None,
        )


class EventStream:
    """The `die` events of containers with `labels`, read in a thread of its own from `start` until `abort` or the end."""

    def __init__(self, url: str, api_version: str, labels: Mapping[str, str]) -> None:
        self._client, self._sockets = abortable_client(url, api_version)
        described = [f"{key}={value}" for key, value in labels.items()]
        self._filters = {"type": "container", "event": "die", "label": [*described, LABEL_SESSION, LABEL_KERNEL]}

    def start(self, on_death: Callable[[Death], object], on_end: Callable[[], object]) -> None:
        """Both are called in the stream's thread; `on_end` once, last."""
        threading.Thread(target=self._read, args=(on_death, on_end), name="events", daemon=True).start()

    def abort(self) -> None:
        """Break the stream, at whatever moment. The thread ends at once."""
        self._sockets.abort()

    def _read(self, on_death: Callable[[Death], object], on_end: Callable[[], object]) -> None:
        # What has just happened comes again, so that nothing is lost between two streams. To hear twice of it does no harm.
        since = int(time.time()) - _REPLAYED_SECONDS
        try:
            for event in self._client.events(since=since, filters=self._filters, decode=True):
                on_death(Death.of(event))
        except (DockerException, requests.RequestException, HTTPError, OSError, ValueError, KeyError) as error:
            _log.info("the engine's event stream ended: %s", error)
        finally:
            self._client.close()
            with contextlib.suppress(RuntimeError):  # The process is stopping, and its loop with it.
                on_end()
