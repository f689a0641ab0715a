"""The application: its parts, its routes, its beginning and end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from api import problems
from api.dependencies import Parts
from api.dispatcher import dispatch_forever
from api.orchestrator import Orchestrator, TemporalOrchestrator
from api.request_limits import RequestLimits
from api.routes import events, fleet, health, identities, logs, sessions
from api.watch import Watch
from towline.settings import Settings, load_settings
from towline.store.database import Database


def create_app(settings: Settings | None = None, *, orchestrator: Orchestrator | None = None) -> FastAPI:
    """The application. `orchestrator` for tests; by default Temporal, as the settings say."""
    settings = settings or load_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = Database.open(settings.database.url)
        temporal = orchestrator or await TemporalOrchestrator.connect(
            settings.temporal.address, settings.temporal.namespace
        )
        watch = Watch(database, temporal, settings.database.url)
        app.state.parts = Parts(database=database, orchestrator=temporal, watch=watch)
        tasks = [asyncio.create_task(watch.run()), asyncio.create_task(dispatch_forever(database, temporal))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await database.close()

    app = FastAPI(
        title="Towline",
        version=version("towline"),
        summary="Container sessions on a fleet of Docker hosts.",
        lifespan=lifespan,
    )
    app.add_middleware(RequestLimits)
    problems.install(app)
    for routes in (sessions, events, logs, fleet, identities, health):
        app.include_router(routes.router)
    return app
