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
from workers.reconciliation import Reconciliation
from workers.shutdown import stop_requested

_log = logging.getLogger(__name__)
_COMPARE_SECONDS: Final = 30.0


async def run_control(settings: Settings) -> None:
    """The control worker, until SIGTERM or SIGINT."""
    stop = stop_requested()
    client = await connect(settings.temporal.address, settings.temporal.namespace, identity=f"control@{os.getpid()}")
    database = Database.open(settings.database.url)
    records = StoreRecords(database)
    reconciliation = Reconciliation(client, database, records)
    comparing = asyncio.create_task(reconciliation.run(every_seconds=_COMPARE_SECONDS))
    try:
        async with control_worker(client, records):
            _log.info("control worker ready")
            await stop.wait()
    finally:
        comparing.cancel()
        await asyncio.gather(comparing, return_exceptions=True)
        await database.close()
