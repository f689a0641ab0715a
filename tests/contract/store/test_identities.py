"""Users, tokens and the first of both."""

import asyncio
import re
from datetime import timedelta

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError

from tests.contract.store.conftest import StoreRecorder
from tests.contract.store.specs import GIB, online, spec
from towline.domain.agents import AgentStatus, RecordAgent
from towline.domain.records import Place
from towline.errors import ConflictError, NotFoundError
from towline.store.agents import get_agent, list_agents
from towline.store.bootstrap import ensure_first_token
from towline.store.database import Database
from towline.store.identities import (
    create_token,
    create_user,
    hash_of,
    list_tokens,
    list_users,
    revoke_token,
    user_of_token,
)
from towline.store.rows import TokenRow, utc_now
from towline.store.views import UserView


async def whose(database: Database, token: str) -> UserView | None:
    async with database.transaction() as tx:
        return await user_of_token(tx, token)


class TestTokens:
    async def test_is_its_users_and_only_its_hash_is_stored(self, database: Database) -> None:
        async with database.transaction() as tx:
            view, plain = await create_token(tx, user="ann", name="laptop")
        assert re.fullmatch(r"twl_[A-Za-z0-9_-]{43}", plain)
        assert (user := await whose(database, plain)) is not None
        assert (user.name, view.user, view.name) == ("ann", "ann", "laptop")
        async with database.transaction() as tx:
            rows = (await tx.execute(text("SELECT t::text FROM tokens t"))).scalars().all()
        assert hash_of(plain).hex() in rows[0]
        assert plain not in rows[0]
        assert plain.removeprefix("twl_") not in rows[0]

    @pytest.mark.parametrize("token", ["", "twl_", "twl_unknown", "\x00", "\ud800", "é", "x" * 100_000])
    async def test_one_that_is_unknown_is_nobodys(self, database: Database, token: str) -> None:
        assert await whose(database, token) is None

    async def test_a_revoked_or_expired_one_is_nobodys(self, database: Database) -> None:
        soon = utc_now() + timedelta(minutes=1)
        async with database.transaction() as tx:
            revoked, first = await create_token(tx, user="ann")
            _, second = await create_token(tx, user="ann", expires_at=soon)
            _, third = await create_token(tx, user="ann", expires_at=utc_now())
        assert [await whose(database, token) is not None for token in (first, second, third)] == [True, True, False]
        for _ in range(2):
            async with database.transaction() as tx:
                await revoke_token(tx, revoked.id)
        assert [await whose(database, token) is not None for token in (first, second)] == [False, True]
        async with database.transaction() as tx:
            with pytest.raises(NotFoundError):
                await revoke_token(tx, "tok-none")

    async def test_its_use_is_noted_to_the_minute(self, database: Database) -> None:
        async with database.transaction() as tx:
            _, plain = await create_token(tx, user="ann")

        async def noted() -> list[bool]:
            async with database.transaction() as tx:
                [before] = await list_tokens(tx, user="ann")
            await whose(database, plain)
            async with database.transaction() as tx:
                [after] = await list_tokens(tx, user="ann")
            return [after.last_used_at is not None, after.last_used_at != before.last_used_at]

        assert await noted() == [True, True]
        assert await noted() == [True, False]
        async with database.transaction() as tx:
            await tx.execute(update(TokenRow).values(last_used_at=utc_now() - timedelta(minutes=2)))
        assert await noted() == [True, True]

    async def test_of_a_user_that_is_not_there(self, database: Database) -> None:
        async with database.transaction() as tx:
            with pytest.raises(NotFoundError):
                await create_token(tx, user="bob")
            assert await list_tokens(tx, user="bob") == []


class TestUsers:
    async def test_names_are_unique_also_when_taken_at_once(self, database: Database) -> None:
        async def create() -> UserView:
            async with database.transaction() as tx:
                return await create_user(tx, name="bob", role="user")

        made = await asyncio.gather(*(create() for _ in range(8)), return_exceptions=True)
        assert sum(isinstance(one, UserView) for one in made) == 1
        assert sum(isinstance(one, ConflictError) for one in made) == 7
        async with database.transaction() as tx:
            assert [user.name for user in await list_users(tx)] == ["ann", "bob"]

    async def test_a_role_that_is_none_is_refused(self, database: Database) -> None:
        with pytest.raises(IntegrityError, match="users_role"):
            async with database.transaction() as tx:
                await create_user(tx, name="bob", role="root")


class TestTheFirstToken:
    async def test_of_many_that_start_at_once_one_gets_it(self, database: Database, postgres_url: str) -> None:
        async with database.transaction() as tx:
            await tx.execute(text("TRUNCATE users CASCADE"))
        starts = (asyncio.to_thread(ensure_first_token, postgres_url) for _ in range(5))
        [token] = [one for one in await asyncio.gather(*starts) if one is not None]
        assert (user := await whose(database, token)) is not None
        assert (user.name, user.role) == ("admin", "superadmin")
        assert await asyncio.to_thread(ensure_first_token, postgres_url) is None

    async def test_a_lost_one_is_replaced_only_on_demand(self, database: Database, postgres_url: str) -> None:
        async with database.transaction() as tx:
            await tx.execute(text("TRUNCATE users CASCADE"))
        first = await asyncio.to_thread(ensure_first_token, postgres_url)
        another = await asyncio.to_thread(lambda: ensure_first_token(postgres_url, another=True))
        assert first is not None
        assert another is not None
        assert await whose(database, first) == await whose(database, another) is not None


class TestAgents:
    async def test_shows_what_it_said_and_what_is_free(self, store: StoreRecorder, database: Database) -> None:
        await store.record_agent(online("a2", platform="linux/amd64", engine_version="20.10", labels={"zone": "x"}))
        await store.record_agent(online("a1"))
        one = spec(cpu=0.1, gib=3, agent="a2")
        await store.add(one)
        await store.place(Place(session_id=one.session_id))
        async with database.transaction() as tx:
            assert [agent.id for agent in await list_agents(tx)] == ["a1", "a2"]
            assert (agent := await get_agent(tx, "a2")) is not None
            assert await get_agent(tx, "a3") is None
        assert (agent.cpu_free, agent.memory_bytes_free) == (3.9, 5 * GIB)
        assert (agent.status, agent.cordoned, agent.platform) == ("ONLINE", False, "linux/amd64")
        assert (agent.engine_version, agent.labels, agent.boot_id) == ("20.10", {"zone": "x"}, "boot")

    async def test_a_lost_one_keeps_when_it_was_last_seen_and_what_it_said(
        self, store: StoreRecorder, database: Database
    ) -> None:
        await store.record_agent(online(gib=8))
        async with database.transaction() as tx:
            seen = await get_agent(tx, "a1")
        await store.record_agent(RecordAgent(facts=online(gib=1).facts, status=AgentStatus.LOST))
        async with database.transaction() as tx:
            lost = await get_agent(tx, "a1")
        assert seen is not None
        assert lost is not None
        assert (lost.status, lost.seen_at, lost.memory_bytes) == ("LOST", seen.seen_at, seen.memory_bytes)

    async def test_a_cordoned_one_stays_so_when_it_says_hello(self, store: StoreRecorder, database: Database) -> None:
        await store.record_agent(online())
        async with database.transaction() as tx:
            await tx.execute(text("UPDATE agents SET cordoned = true"))
        await store.record_agent(online())
        assert [room.is_open for room in await store.rooms()] == [False]
