"""The ledger and the kernels compared, once a day: nothing mends a difference, for none has a known cause."""

import logging

from towline.store.audit import drift
from towline.store.database import Database

_log = logging.getLogger(__name__)


async def audit(database: Database) -> None:
    """Say what differs, as errors, or that nothing does."""
    async with database.transaction() as tx:
        found = await drift(tx)
    for sentence in found:
        _log.error("the ledger has drifted: %s", sentence)
    if not found:
        _log.info("the ledger holds what the kernels do")
