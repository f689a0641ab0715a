"""The real application on a real Postgres, with the workflows faked."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from tests.fakes.orchestrator import FakeOrchestrator
from tests.fakes.tasks import FakeTasks
from towline.settings import DatabaseSettings, Settings
from towline.store.bootstrap import ensure_first_token
from towline.store.database import Database
from towline.store.identities import create_token, create_user


@dataclass(frozen=True, kw_only=True)
class Served:
    """The application, and clients of a superadmin, of a user, and of nobody."""

    app: FastAPI
    admin: httpx.AsyncClient
    user: httpx.AsyncClient
    nobody: httpx.AsyncClient
    workflows: FakeOrchestrator
    tasks: FakeTasks
    database: Database

    async def create(self, client: httpx.AsyncClient | None = None, **fields: Any) -> dict[str, Any]:
        """A stored session."""
        answer = await (client or self.user).post("/v1/sessions", json={"image": "busybox", **fields})
        assert answer.status_code == 201, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def count(self) -> int:
        """How many sessions are stored."""
        return len((await self.admin.get("/v1/sessions?limit=200")).json()["sessions"])


@pytest.fixture(scope="module")
async def _tokens(postgres_url: str) -> tuple[str, str]:
    admin = await asyncio.to_thread(ensure_first_token, postgres_url)
    assert admin is not None
    database = Database.open(postgres_url)
    async with database.transaction() as tx:
        await create_user(tx, name="ann", role="user")
        _, user = await create_token(tx, user="ann")
    await database.close()
    return admin, user


@pytest.fixture
async def served(postgres_url: str, _tokens: tuple[str, str]) -> AsyncIterator[Served]:
    workflows = FakeOrchestrator()
    settings = Settings(database=DatabaseSettings(url=postgres_url))
    tasks = FakeTasks()
    app = create_app(settings, orchestrator=workflows, tasks=tasks)
    database = Database.open(postgres_url)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        clients = [
            httpx.AsyncClient(
                transport=transport,
                base_url="http://towline",
                headers={"Authorization": f"Bearer {token}"} if token else {},
            )
            for token in (*_tokens, None)
        ]
        yield Served(
            app=app,
            admin=clients[0],
            user=clients[1],
            nobody=clients[2],
            workflows=workflows,
            tasks=tasks,
            database=database,
        )
        for client in clients:
            await client.aclose()
    await database.close()
