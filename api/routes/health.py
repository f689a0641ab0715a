"""Is the API alive, and can it work."""

import asyncio
from typing import Final

from fastapi import APIRouter, Response
from sqlalchemy.exc import SQLAlchemyError

from api.dependencies import TheParts
from api.schemas.answers import Health

router = APIRouter(tags=["health"])
_DEADLINE_SECONDS: Final = 3.0


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health, "description": "Something that is needed does not answer."}})
async def readyz(parts: TheParts, response: Response) -> Health:
    """Postgres and Temporal answer."""
    postgres, temporal = await asyncio.gather(_postgres(parts), parts.orchestrator.responds())
    checks = {"postgres": "ok" if postgres else "no answer", "temporal": "ok" if temporal else "no answer"}
    ready = postgres and temporal
    response.status_code = 200 if ready else 503
    return Health(status="ok" if ready else "unavailable", checks=checks)


async def _postgres(parts: TheParts) -> bool:
    try:
        return await asyncio.wait_for(parts.database.responds(), _DEADLINE_SECONDS)
    except (SQLAlchemyError, OSError, TimeoutError):
        return False
