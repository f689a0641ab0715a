"""Containers of ours that nobody wants any more: their session is over, or has its kernel on another agent."""

import logging
from collections.abc import Awaitable, Callable

from towline.engine.containers import EngineContainers, OurContainer
from towline.errors import EngineError

_log = logging.getLogger(__name__)

IsWanted = Callable[[str, int], Awaitable[bool]]
"""Whether a session (by its id) may want the container of that kernel here. In doubt: True."""


async def remove_orphans(containers: EngineContainers, is_wanted: IsWanted) -> list[OurContainer]:
    """Remove what is not wanted, and the networks of such sessions, and answer which containers are gone. Only what has this
    fleet's and this agent's labels is looked at. What the engine refuses to remove is tried again the next time. Raises
    `EngineError` when there is no list."""
    removed: list[OurContainer] = []
    for one in await containers.list_ours():
        # Asked within the turn: a start that comes meanwhile would find this container and count on it.
        async with containers.turn(one.session_id, one.kernel):
            if await is_wanted(one.session_id, one.kernel):
                continue
            try:
                await containers.remove(one.container_id)
            except EngineError as error:
                _log.warning("the orphan %s could not be removed: %s", one.container_id[:12], error)
            else:
                _log.warning("removed %s of %s: nobody wants it any more", one.container_id[:12], one.session_id)
                removed.append(one)
    for session_id in await containers.networks.list_ours():
        # All kernels of a session that has a network of its own are on one agent.
        if not await is_wanted(session_id, 0):
            await containers.networks.leave(session_id)
    return removed
