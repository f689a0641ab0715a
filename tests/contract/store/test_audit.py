"""The ledger against the kernels: nothing is found where all is well, and each way to differ is."""

from typing import Any

import pytest
from sqlalchemy import text

from tests.contract.store.conftest import StoreRecorder, added
from tests.contract.store.specs import S, end, online, running, spec
from towline.domain.records import Place
from towline.store.audit import drift


async def found(store: StoreRecorder) -> list[str]:
    async with store.database.transaction() as tx:
        return await drift(tx)


async def done_by_hand(store: StoreRecorder, statement: str, **values: Any) -> None:
    async with store.database.transaction() as tx:
        await tx.execute(text(statement), values)


async def test_in_no_stage_of_a_life_is_anything_found(store: StoreRecorder) -> None:
    await store.record_agent(online())
    [session_id] = await added(store, spec(cpu=0.3, kernels=2))
    assert await found(store) == []
    await store.place(Place(session_id=session_id))
    assert await found(store) == []
    await store.record(running(session_id, kernels=2))
    assert await found(store) == []
    await store.finish(end(session_id, S.RUNNING, S.TERMINATED, kernels=1))
    assert await found(store) == []
    await store.finish(end(session_id, S.RUNNING, S.TERMINATED, kernels=2))
    assert await found(store) == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE ledger SET freed_at = now()", "PREPARING on a1, holds nothing"),
        ("UPDATE ledger SET cpu = 2", "holds 2 cores"),
        ("UPDATE ledger SET memory_bytes = 7", "7 bytes"),
        ("UPDATE ledger SET gpu = 1", "1 GPUs"),
        ("UPDATE kernels SET agent_id = 'a2'", "PREPARING on a2, holds 1 cores"),
        ("UPDATE kernels SET status = 'PENDING', agent_id = NULL", "PENDING, holds 1 cores"),
        ("UPDATE sessions SET status = 'CANCELLED', ended_at = now()", "holds 1 cores"),
    ],
)
async def test_each_way_to_differ_is_found(store: StoreRecorder, statement: str, said: str) -> None:
    await store.record_agent(online())
    [session_id] = await added(store, spec())
    await store.place(Place(session_id=session_id))
    await done_by_hand(store, statement)
    [sentence] = await found(store)
    assert sentence.startswith(f"kernel 0 of {session_id}, ")
    assert said in sentence
