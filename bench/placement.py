"""Placement as records alone: a large fleet, a long queue, on a PostgreSQL of our own, a small fleet beside a large one."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import text, update

from bench.pulls import Figure, percentile
from towline.domain.ids import new_session_id
from towline.domain.lifecycle import Reason
from towline.domain.records import Place
from towline.domain.sessions import Resources, SessionSpec
from towline.embedded.postgres import running_postgres
from towline.store.database import Database
from towline.store.ledger import lock_placement, who_may_fit
from towline.store.migrate import upgrade
from towline.store.records import StoreRecords
from towline.store.rows import AgentRow, SessionRow, UserRow, utc_now
from towline.store.sessions import create_session

SMALL_FLEET = 100
LARGE_FLEET = 1_000
PENDING = 10_000
PLACED = 500
ROUNDS = 20
_AT_ONCE = 8
_GIB = 1 << 30
_BATCH = 1_000
_OWNER = "usr-bench"
_SIZES = ((0.5, 1), (1.0, 2), (2.0, 8), (4.0, 4))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One fleet: seconds of each placement and of each look for who fits, placements per second, and the resident bytes of
    this process at the end."""

    placements: list[float]
    looks: list[float]
    per_second: float
    resident_bytes: int


def placing() -> Iterator[Figure]:
    """The large fleet's figures, and how they compare with the small one's."""
    small, large = (_measure(agents) for agents in (SMALL_FLEET, LARGE_FLEET))
    size = LARGE_FLEET // SMALL_FLEET
    of = f"{LARGE_FLEET} agents, {PENDING} pending"
    yield Figure(name=f"one session placed, p95, {of}", value=_ms(large.placements), limit="")
    yield Figure(
        name="the same, as a multiple of 100 agents",
        value=_ratio(large.placements, small.placements),
        limit=f"≤ {size}",
    )
    yield Figure(name=f"look for who fits, p95, {of}", value=_ms(large.looks), limit="")
    yield Figure(
        name="the same, as a multiple of 100 agents", value=_ratio(large.looks, small.looks), limit=f"≤ {size}"
    )
    yield Figure(name=f"sessions placed per second, {of}", value=f"{large.per_second:.0f}", limit="")
    yield Figure(
        name=f"resident memory of the process that places, {of}", value=f"{large.resident_bytes / 1e6:.0f} MB", limit=""
    )


def _measure(agents: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="bench-postgres-") as directory:
        # PostgreSQL runs as another account when we are root, and has to reach its data.
        Path(directory).chmod(0o755)
        with running_postgres(Path(directory) / "data", durable=True) as url:
            return asyncio.run(_measured(url, agents))


async def _measured(url: str, agents: int) -> Measured:
    async with _filled(url, agents) as (database, ids):
        records = StoreRecords(database)
        placements: list[float] = []
        queue = iter(ids[:PLACED])

        async def place() -> None:
            for session_id in queue:
                began = time.perf_counter()
                await records.place(Place(session_id=session_id))
                placements.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(place() for _ in range(_AT_ONCE)))
        per_second = len(placements) / (time.perf_counter() - began)
        looks = [await _look(database) for _ in range(ROUNDS)]
        resident = psutil.Process().memory_info().rss
    return Measured(placements=placements, looks=looks, per_second=per_second, resident_bytes=resident)


async def _look(database: Database) -> float:
    began = time.perf_counter()
    async with database.transaction() as tx:
        await lock_placement(tx)
        await who_may_fit(tx)
    return time.perf_counter() - began


@asynccontextmanager
async def _filled(url: str, agents: int) -> AsyncIterator[tuple[Database, list[str]]]:
    """A database with so many agents and `PENDING` sessions that wait for room; and their ids, in turn."""
    await asyncio.to_thread(upgrade, url)
    database = Database.open(url)
    try:
        yield database, await _fill(database, agents)
    finally:
        await database.close()


async def _fill(database: Database, agents: int) -> list[str]:
    specs = [_spec(cpu, gib) for cpu, gib in itertools.islice(itertools.cycle(_SIZES), PENDING)]
    async with database.transaction() as tx:
        tx.add(UserRow(id=_OWNER, name="bench", role="user"))
        tx.add_all(_agent(number) for number in range(agents))
    for batch in range(0, PENDING, _BATCH):
        async with database.transaction() as tx:
            for spec in specs[batch : batch + _BATCH]:
                await create_session(tx, spec, idempotency_key=None, body_hash=b"")
    async with database.transaction() as tx:
        await tx.execute(update(SessionRow).values(reason=Reason.NO_CAPACITY, dispatched_at=utc_now()))
        await tx.execute(text("ANALYZE"))
    return [spec.session_id for spec in specs]


def _spec(cpu: float, gib: int) -> SessionSpec:
    return SessionSpec(
        session_id=new_session_id(),
        owner_id=_OWNER,
        owner="bench",
        image="docker.io/library/busybox:latest",
        resources=Resources(cpu=cpu, memory_bytes=gib * _GIB),
    )


def _agent(number: int) -> AgentRow:
    return AgentRow(
        id=f"agent-{number:04}",
        boot_id="boot",
        status="ONLINE",
        cpu=16.0,
        memory_bytes=64 * _GIB,
        platform="linux/amd64",
        resource_group="default",
    )


def _ms(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.95) * 1000:.0f} ms"


def _ratio(ours: list[float], others: list[float]) -> str:
    return f"{percentile(ours, 0.95) / percentile(others, 0.95):.1f}"
