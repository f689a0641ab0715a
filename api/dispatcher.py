"""Starting what was stored while Temporal was away."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api.orchestrator import Orchestrator
from towline.store.database import Database
from towline.store.sessions import mark_dispatched, undispatched

_log = logging.getLogger(__name__)
_EVERY_SECONDS: Final = 2.0
_PATIENCE: Final = timedelta(seconds=2)
"""The request that has stored a session starts its workflow itself, and the workflow's first record says so."""


async def dispatch_forever(database: Database, orchestrator: Orchestrator) -> None:
    """Every session that is stored gets its workflow, sooner or later. Runs until cancelled."""
    while True:
        try:
            await dispatch_once(database, orchestrator)
        except (SQLAlchemyError, OSError) as error:
            _log.warning("cannot look for sessions to start: %s", error)
        await asyncio.sleep(_EVERY_SECONDS)


async def dispatch_once(database: Database, orchestrator: Orchestrator, *, older_than: timedelta = _PATIENCE) -> None:
    """Start the workflows of the sessions that were stored so long ago and have none yet."""
    async with database.transaction() as tx:
        waiting = await undispatched(tx, older_than=older_than)
    for spec in waiting:
        if not await orchestrator.start(spec):
            return
        async with database.transaction() as tx:
            await mark_dispatched(tx, spec.session_id)
