"""Looking at something again and again, beside a worker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from sqlalchemy.exc import SQLAlchemyError
from temporalio.service import RPCError

_log = logging.getLogger(__name__)


async def repeat(look: Callable[[], Awaitable[None]], *, what: str, every_seconds: float) -> NoReturn:
    """Look at once, and then so often, until cancelled. A failure is said, and the next look is not earlier for it."""
    while True:
        try:
            await look()
        except (SQLAlchemyError, OSError, RPCError) as error:
            _log.warning("%s not now: %s", what, error)
        except Exception:
            _log.exception("%s failed in a way that it should not; tried again later", what)
        await asyncio.sleep(every_seconds)
