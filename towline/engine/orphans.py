"""Containers of ours that nobody looks after any more: shown to people, and removed only where their session is over."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from towline.engine.container_calls import State
from towline.engine.containers import EngineContainers, OurContainer
from towline.errors import EngineError

_log = logging.getLogger(__name__)

IsOver = Callable[[str], Awaitable[bool]]
"""Whether the workflow of a session (by its id) is known to be closed. In doubt: False."""

UNSTARTED_AFTER: Final = timedelta(minutes=10)
"""A start that is still under way is younger than that."""


class Neglect(StrEnum):
    """Why a container is thought to be an orphan."""

    SESSION_OVER = "session-over"
    NEVER_STARTED = "never-started"


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """A container of ours, and what is wrong with it."""

    container: OurContainer
    why: Neglect


async def list_orphans(
    containers: EngineContainers, is_over: IsOver, *, now: datetime, unstarted_after: timedelta = UNSTARTED_AFTER
) -> list[Orphan]:
    """Containers whose session is over, and those that were created long ago and never started. Raises `EngineError`."""
    ours = await containers.list_ours()
    over = {session_id: await is_over(session_id) for session_id in sorted({one.session_id for one in ours})}
    found: list[Orphan] = []
    for one in ours:
        if over[one.session_id]:
            found.append(Orphan(container=one, why=Neglect.SESSION_OVER))
        elif one.state is State.CREATED and now - one.created_at > unstarted_after:
            found.append(Orphan(container=one, why=Neglect.NEVER_STARTED))
    return found


async def remove_orphans(containers: EngineContainers, is_over: IsOver, *, now: datetime) -> list[Orphan]:
    """Remove those whose session is over, and answer which are gone. What the engine refuses is tried again the next time."""
    removed: list[Orphan] = []
    for orphan in await list_orphans(containers, is_over, now=now):
        one = orphan.container
        if orphan.why is not Neglect.SESSION_OVER:
            continue
        try:
            async with containers.turn(one.session_id, one.kernel):
                await containers.remove(one.container_id)
        except EngineError as error:
            _log.warning("the orphan %s could not be removed: %s", one.container_id[:12], error)
        else:
            removed.append(orphan)
    return removed
