"""Sessions that live on the store's records as their workflows would have them, and are woken by nothing but what the records
answer: the workflows' second look, every two minutes, is left out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import update
from sqlmodel import col

from tests.contract.store.specs import OWNER, S, end, online, spec
from towline.domain.agents import AgentStatus, RecordAgent
from towline.domain.lifecycle import FINAL, QUOTA_COUNTED, Reason, Transition, session_status_of
from towline.domain.quotas import Quota, Subject
from towline.domain.records import Admit, Finish, Place, Record
from towline.domain.sessions import SessionSpec
from towline.store.agents import close_agent, open_agent
from towline.store.audit import drift
from towline.store.database import Database
from towline.store.ledger import KEPT_AFTER, rooms, who_may_fit
from towline.store.quotas import admissible, set_quota
from towline.store.records import StoreRecords
from towline.store.rows import SessionRow
from towline.store.sessions import create_session, get_session, mark_dispatched

AGENTS: Final = ("a1", "a2", "a3")
CPU: Final = 4.0
QUOTAS: Final = {OWNER: Quota(sessions=2, cpu=5.0), "usr-bob": Quota(sessions=3)}
NAMES: Final = {OWNER: "ann", "usr-bob": "bob"}


@dataclass(kw_only=True)
class Life:
    """One session as its workflow knows it. Its steps come one after the other."""

    spec: SessionSpec
    status: S = S.PENDING
    woken: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def id(self) -> str:
        return self.spec.session_id


class Town:
    """Agents, sessions, and what can happen to them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records = StoreRecords(database)
        self._online = set[str]()
        self._cordoned = set[str]()
        self.lives: list[Life] = []

    async def found(self) -> None:
        """Bring all agents online, and limit the users."""
        async with self._database.transaction() as tx:
            for user_id, quota in QUOTAS.items():
                await set_quota(tx, Subject(kind="user", name=NAMES[user_id]), quota)
        for agent_id in AGENTS:
            await self.bring_back(agent_id)

    async def create(self, *, owner_id: str, **fields: object) -> None:
        one = spec(gib=1, owner_id=owner_id, owner=NAMES[owner_id], **fields)  # type: ignore[arg-type]
        async with self._database.transaction() as tx:
            await create_session(tx, one, idempotency_key=None, body_hash=b"")
            await mark_dispatched(tx, one.session_id)
        life = Life(spec=one)
        self.lives.append(life)
        await self._ask(life)

    async def bring_image(self, life: Life) -> None:
        """Its image has come, if it has a place."""
        async with life.turn:
            if life.status is S.PREPARING:
                await self._admit(life, self._steps(life, S.PREPARED))

    async def exit(self, life: Life) -> None:
        """Its command ends, if it runs."""
        async with life.turn:
            if life.status is S.RUNNING:
                await self._finish(life, end(life.id, S.RUNNING, S.TERMINATED, kernels=life.spec.kernels))

    async def cancel(self, life: Life) -> None:
        """It is ended by hand, wherever it is."""
        async with life.turn:
            if life.status in FINAL:
                return
            if life.status is S.RUNNING:
                await self._record(life, S.TERMINATING)
                to = S.TERMINATED
            else:
                to = S.CANCELLED
            finish = end(life.id, life.status, to, kernels=life.spec.kernels, reason=Reason.CANCELLED_BY_USER)
            await self._finish(life, finish)

    async def grow_old(self, life: Life) -> None:
        """It has waited for longer than a session is let wait before room is kept for it."""
        aged = update(SessionRow).where(col(SessionRow.id) == life.id)
        async with life.turn, self._database.transaction() as tx:
            await tx.execute(aged.values(created_at=SessionRow.created_at - 2 * KEPT_AFTER))
        # Time tells nobody: room that is kept for this one from now on may have been kept for another.
        self._wake([one.id for one in self.lives if one.status is S.PENDING])

    async def lose(self, agent_id: str) -> None:
        """Nothing is heard of it any more: who does not run there yet goes elsewhere, who runs there ends."""
        self._online.discard(agent_id)
        told = await self._record_agent(agent_id)
        await asyncio.gather(*(self._leave(life) for life in self.lives if life.id in told))

    async def bring_back(self, agent_id: str) -> None:
        self._online.add(agent_id)
        await self._record_agent(agent_id)

    async def cordon(self, agent_id: str) -> None:
        self._cordoned.add(agent_id)
        async with self._database.transaction() as tx:
            await close_agent(tx, agent_id, actor="admin", why="", drain=False, until=None)

    async def uncordon(self, agent_id: str) -> None:
        self._cordoned.discard(agent_id)
        async with self._database.transaction() as tx:
            await open_agent(tx, agent_id, actor="admin", why="")
        await self._record_agent(agent_id)

    async def settle(self) -> None:
        """All who were woken ask again, until nobody is."""
        while woken := [life for life in self.lives if life.woken]:
            await asyncio.gather(*(self._ask(life) for life in woken))

    async def is_sound(self) -> None:
        """What must hold whatever has happened, once everybody who was woken has asked."""
        async with self._database.transaction() as tx:
            free = await rooms(tx)
            assert await drift(tx) == []
            assert await who_may_fit(tx) == (), "somebody waits for room that is there"
            assert await admissible(tx) == (), "somebody waits for a quota that has room"
            views = [await get_session(tx, life.id) for life in self.lives]
        assert all(room.cpu_free >= 0 and room.memory_bytes_free >= 0 for room in free), free
        for life, view in zip(self.lives, views, strict=True):
            assert view is not None
            assert view.status is session_status_of(kernel.status for kernel in view.kernels)
            assert view.status is life.status
        for user_id, quota in QUOTAS.items():
            counted = [one for one in self.lives if one.spec.owner_id == user_id and one.status in QUOTA_COUNTED]
            assert len(counted) <= (quota.sessions or 0), counted
            used = sum(one.spec.kernels * one.spec.resources.cpu for one in counted)
            assert used <= (quota.cpu or used), counted

    async def end_all(self) -> None:
        """Everybody is cancelled: all agents are as they were."""
        await asyncio.gather(*(self.cancel(life) for life in self.lives))
        await self.settle()
        await self.is_sound()
        async with self._database.transaction() as tx:
            assert {room.cpu_free for room in await rooms(tx)} == {CPU}

    async def _ask(self, life: Life) -> None:
        """What its workflow asks for when it is woken."""
        async with life.turn:
            woken, life.woken = life.woken, False
            if life.status is S.PENDING:
                placement = await self._records.place(Place(session_id=life.id, woken=woken))
                if placement.never:
                    await self._finish(life, end(life.id, S.PENDING, S.ERROR, kernels=life.spec.kernels))
                elif placement.agents:
                    life.status = S.PREPARING
                self._wake(placement.woken)
            elif life.status is S.PREPARED:
                await self._admit(life, (), woken=woken)

    async def _admit(self, life: Life, steps: Iterable[Transition], *, woken: bool = False) -> None:
        record = Record(session_id=life.id, transitions=tuple(steps))
        life.status = S.PREPARED
        admission = await self._records.admit(Admit(record=record, woken=woken))
        self._wake(admission.woken)
        if admission.admitted:
            life.status = S.CREATING
            await self._record(life, S.RUNNING)

    async def _leave(self, life: Life) -> None:
        async with life.turn:
            if life.status is S.RUNNING:
                lost = end(life.id, S.RUNNING, S.ERROR, kernels=life.spec.kernels, reason=Reason.AGENT_LOST)
                await self._finish(life, lost)
            elif life.status not in (S.PENDING, *FINAL):
                await self._record(life, S.PENDING)
        await self._ask(life)

    async def _record(self, life: Life, to: S) -> None:
        freed = await self._records.record(Record(session_id=life.id, transitions=tuple(self._steps(life, to))))
        self._wake(freed.woken)
        life.status = to

    async def _finish(self, life: Life, finish: Finish) -> None:
        self._wake((await self._records.finish(finish)).woken)
        life.status = finish.transitions[0].to_status

    async def _record_agent(self, agent_id: str) -> tuple[str, ...]:
        status = AgentStatus.ONLINE if agent_id in self._online else AgentStatus.LOST
        facts = online(agent_id, cpu=CPU, gib=64).facts
        recorded = await self._records.record_agent(RecordAgent(facts=facts, status=status))
        self._wake(recorded.woken)
        return recorded.sessions

    def _wake(self, session_ids: Iterable[str]) -> None:
        for life in self.lives:
            life.woken = life.woken or life.id in session_ids

    def _steps(self, life: Life, to: S) -> list[Transition]:
        return [Transition(kernel=k, from_status=life.status, to_status=to) for k in range(life.spec.kernels)]


Happening = Callable[[Town], Awaitable[None]]
