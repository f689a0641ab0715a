"""Whatever happens to sessions and agents, in whatever order and however much of it at once: no agent is over its capacity, no
user over their quota, nothing leaks, and nobody waits for what is there."""

import asyncio
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from sqlalchemy import text

from tests.contract.store.town import AGENTS, NAMES, Happening, Town
from towline.domain.sessions import ClusterMode, Kind
from towline.store.database import Database
from towline.store.rows import UserRow

SPECS = st.fixed_dictionaries(
    {
        "owner_id": st.sampled_from(list(NAMES)),
        "cpu": st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        "kernels": st.integers(1, 3),
        "cluster_mode": st.sampled_from(ClusterMode),
        "kind": st.sampled_from(Kind),
        "priority": st.sampled_from([10, 50]),
    }
)


def created(fields: dict[str, Any]) -> Happening:
    return lambda town: town.create(**fields)


def to_a_session(name: str, number: int) -> Happening:
    async def happen(town: Town) -> None:
        if town.lives:
            await getattr(town, name)(town.lives[number % len(town.lives)])

    return happen


def to_an_agent(name: str, agent_id: str) -> Happening:
    return lambda town: getattr(town, name)(agent_id)


HAPPENINGS = st.one_of(
    st.builds(created, SPECS),
    st.builds(
        to_a_session, st.sampled_from(["bring_image", "bring_image", "exit", "cancel", "grow_old"]), st.integers(0, 30)
    ),
    st.builds(to_an_agent, st.sampled_from(["lose", "bring_back", "cordon", "uncordon"]), st.sampled_from(AGENTS)),
)
AT_ONCE = st.lists(HAPPENINGS, min_size=1, max_size=5)


async def _live(postgres_url: str, rounds: list[list[Happening]]) -> None:
    database = Database.open(postgres_url)
    try:
        async with database.transaction() as tx:
            await tx.execute(text("TRUNCATE users, quotas, agents, pulls, fleet CASCADE"))
            tx.add_all(UserRow(id=id_, name=name, role="user") for id_, name in NAMES.items())
        town = Town(database)
        await town.found()
        for at_once in rounds:
            await asyncio.gather(*(happen(town) for happen in at_once))
            await town.settle()
            await town.is_sound()
        await town.end_all()
    finally:
        await database.close()


@settings(max_examples=40, deadline=None)
@given(rounds=st.lists(AT_ONCE, min_size=4, max_size=14))
def test_the_records_stay_sound(postgres_url: str, rounds: list[list[Happening]]) -> None:
    asyncio.run(_live(postgres_url, rounds))
