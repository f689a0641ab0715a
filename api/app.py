"""The application: its parts, its routes, its beginning and end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI

from api import problems
from api.dependencies import Parts, only_known_queries
from api.dispatcher import dispatch_forever
from api.live_pulls import PullReader, PullWatch, SharedProgress
from api.orchestrator import Orchestrator, TemporalOrchestrator, lazy_client
from api.request_limits import RequestLimits
from api.routes import agents, events, fleet, health, identities, images, logs, quotas, sessions
from api.tasks import Tasks, TemporalTasks
from api.watch import Watch
from towline.settings import Settings, load_settings
from towline.store.database import Database


def create_app(
    settings: Settings | None = None, *, orchestrator: Orchestrator | None = None, tasks: Tasks | None = None
) -> FastAPI:
    """The application. `orchestrator` and `tasks` for tests; by default Temporal, as the settings say."""
    settings = settings or load_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = Database.open(settings.database.url)
        client = await lazy_client(settings.temporal.address, settings.temporal.namespace)
        temporal = orchestrator or TemporalOrchestrator(client)
        parts = _parts(settings, database, temporal, tasks or TemporalTasks(client))
        app.state.parts = parts
        loops = [asyncio.create_task(parts.watch.run()), asyncio.create_task(dispatch_forever(database, temporal))]
        try:
            yield
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await database.close()

    app = FastAPI(
        title="Towline",
        version=version("towline"),
        summary="Container sessions on a fleet of Docker hosts.",
        lifespan=lifespan,
    )
    app.add_middleware(RequestLimits)
    problems.install(app)
    for routes in (sessions, events, logs, agents, fleet, images, identities, quotas):
        app.include_router(routes.router, dependencies=[Depends(only_known_queries)])
    app.include_router(health.router)
    return app


def _parts(settings: Settings, database: Database, orchestrator: Orchestrator, tasks: Tasks) -> Parts:
    progress = SharedProgress(orchestrator)
    pulls = PullReader(database, progress)
    pull_watch = PullWatch(pulls)
    return Parts(
        database=database,
        orchestrator=orchestrator,
        tasks=tasks,
        watch=Watch(database, progress, pull_watch, settings.database.url),
        progress=progress,
        pulls=pulls,
        pull_watch=pull_watch,
    )
