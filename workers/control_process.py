"""The control worker's process: what it is made of, and its ordered stop."""

import logging
import os

from towline.settings import Settings
from towline.store.database import Database
from towline.store.records import StoreRecords
from workers.connection import connect
from workers.control import control_worker
from workers.shutdown import stop_requested

_log = logging.getLogger(__name__)


async def run_control(settings: Settings) -> None:
    """The control worker, until SIGTERM or SIGINT."""
    stop = stop_requested()
    client = await connect(settings.temporal.address, settings.temporal.namespace, identity=f"control@{os.getpid()}")
    database = Database.open(settings.database.url)
    try:
        async with control_worker(client, StoreRecords(database)):
            _log.info("control worker ready")
            await stop.wait()
    finally:
        await database.close()
