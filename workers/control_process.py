"""The control worker's process: what it is made of, and its ordered stop."""

import asyncio
import logging
import os
from typing import Final

from towline.settings import Settings
from towline.store.database import Database
from towline.store.records import StoreRecords
from workers.connection import connect
from workers.control import control_worker
from workers.ledger_audit import audit
from workers.reconciliation import Reconciliation
from workers.repeating import repeat
from workers.shutdown import stop_requested

_log = logging.getLogger(__name__)
_COMPARE_SECONDS: Final = 30.0
_AUDIT_SECONDS: Final = 24 * 3600.0


async def run_control(settings: Settings) -> None:
    """The control worker, until SIGTERM or SIGINT."""
    stop = stop_requested()
    client = await connect(settings.temporal.address, settings.temporal.namespace, identity=f"control@{os.getpid()}")
    database = Database.open(settings.database.url)
    records = StoreRecords(database)
    reconciliation = Reconciliation(client, database, records)
    looks = (
        repeat(reconciliation.look, what="comparing sessions and workflows", every_seconds=_COMPARE_SECONDS),
        repeat(lambda: audit(database), what="comparing the ledger and the kernels", every_seconds=_AUDIT_SECONDS),
    )
    looking = [asyncio.create_task(look) for look in looks]
    try:
        async with control_worker(client, records):
            _log.info("control worker ready")
            await stop.wait()
    finally:
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        await database.close()
