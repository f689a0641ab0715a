"""A session's own network on an agent: there from the first start of one of its kernels until the last container is removed."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final
from weakref import WeakValueDictionary

import docker
from docker.errors import APIError, NotFound

from towline.domain.ids import LABEL_SESSION, network_name
from towline.domain.lifecycle import Reason
from towline.domain.sessions import SessionSpec
from towline.engine.client import Engine
from towline.engine.container_calls import ask
from towline.errors import ContainerError, EngineError

_log = logging.getLogger(__name__)

_IN_USE: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT)


class SessionNetworks:
    """The networks with an agent's labels. One of the same name without them is not ours and is never touched."""

    def __init__(self, engine: Engine, labels: Mapping[str, str]) -> None:
        self._engine = engine
        self._labels: Final = dict(labels)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._starting: Counter[str] = Counter()

    @asynccontextmanager
    async def joined(self, spec: SessionSpec) -> AsyncIterator[str | None]:
        """The id of the network that a container of the session is to be started in; None where it has none of its own.

        It is not removed while this lasts: a container that is created and not started yet does not hold its network.
        """
        if not spec.has_own_network:
            yield None
            return
        session_id = spec.session_id
        self._starting[session_id] += 1
        try:
            async with self._turn(session_id):
                network_id = await ask(self._engine, lambda client: self._find_or_create(client, session_id))
            yield network_id
        except BaseException:
            self._done_starting(session_id)
            await self.leave(session_id)
            raise
        self._done_starting(session_id)

    async def leave(self, session_id: str) -> None:
        """Remove the session's network unless a container still uses it or is about to. What the engine does not do now is
        left to the look for orphans."""
        try:
            async with self._turn(session_id):
                if not self._starting[session_id]:
                    await ask(self._engine, lambda client: self._remove(client, session_id))
        except EngineError as error:
            _log.warning("the network of %s is not removed now: %s", session_id, error)

    async def list_ours(self) -> list[str]:
        """The sessions that have a network here, by id."""
        filters = {"label": [*self._filter(), LABEL_SESSION]}
        listed = await ask(self._engine, lambda client: client.networks(filters=filters))
        return sorted({str(network["Labels"][LABEL_SESSION]) for network in listed})

    def _turn(self, session_id: str) -> asyncio.Lock:
        return self._turns.setdefault(session_id, asyncio.Lock())

    def _done_starting(self, session_id: str) -> None:
        self._starting[session_id] -= 1
        if not self._starting[session_id]:
            del self._starting[session_id]

    def _filter(self) -> list[str]:
        return [f"{key}={value}" for key, value in self._labels.items()]

    def _ids(self, client: docker.APIClient, session_id: str) -> list[str]:
        filters = {"label": [*self._filter(), f"{LABEL_SESSION}={session_id}"]}
        return [str(network["Id"]) for network in client.networks(filters=filters)]

    def _find_or_create(self, client: docker.APIClient, session_id: str) -> str:
        known = self._ids(client, session_id)
        if known:
            return known[0]
        name = network_name(session_id)
        # Newer engines refuse a second network of a name. Older ones make it, and then cannot tell the two apart.
        if any(network["Name"] == name for network in client.networks(names=[name])):
            message = f"a network named {name} exists on the agent and is not ours; it was left alone"
            raise ContainerError(message, reason=Reason.NO_NETWORK, retryable=False)
        return str(
            client.create_network(name, driver="bridge", labels={**self._labels, LABEL_SESSION: session_id})["Id"]
        )

    def _remove(self, client: docker.APIClient, session_id: str) -> None:
        for network_id in self._ids(client, session_id):
            try:
                client.remove_network(network_id)
            except NotFound:
                continue
            except APIError as error:
                if error.status_code not in _IN_USE:
                    raise
