"""Whether the ledger says what the kernels say: each that has its place holds there what its session asked for, and nobody else
holds anything."""

from typing import Final

from sqlalchemy import and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.lifecycle import FINAL, Status
from towline.store.rows import KernelRow, LedgerRow, SessionRow

_NAMED_MAX: Final = 100


async def drift(tx: AsyncSession) -> list[str]:
    """A sentence for each kernel about which the two differ, the first hundred; empty: none does. One statement, so that what is
    written meanwhile is seen whole or not at all."""
    holds = col(LedgerRow.id).is_not(None)
    # A kernel that has ended before its session does may hold its place still.
    has_place = col(KernelRow.status).not_in([Status.PENDING, *FINAL])
    has_none = or_(col(SessionRow.status).in_(FINAL), col(KernelRow.status) == Status.PENDING)
    asked = col(SessionRow.spec)["resources"]
    differs = or_(
        col(LedgerRow.agent_id) != func.coalesce(KernelRow.agent_id, ""),
        col(LedgerRow.cpu) != asked["cpu"].as_float(),
        col(LedgerRow.memory_bytes) != asked["memory_bytes"].as_integer(),
        col(LedgerRow.gpu) != asked["gpu"].as_integer(),
    )
    its_own = and_(
        col(LedgerRow.session_id) == col(KernelRow.session_id),
        col(LedgerRow.kernel) == col(KernelRow.index),
        col(LedgerRow.freed_at).is_(None),
    )
    query = (
        select(KernelRow, LedgerRow)
        .join(SessionRow, col(SessionRow.id) == col(KernelRow.session_id))
        .outerjoin(LedgerRow, its_own)
        .where(or_(and_(has_place, ~holds), and_(holds, or_(has_none, differs))))
        .order_by(col(KernelRow.session_id), col(KernelRow.index))
        .limit(_NAMED_MAX)
    )
    return [_sentence(kernel, held) for kernel, held in await tx.execute(query)]


def _sentence(kernel: KernelRow, held: LedgerRow | None) -> str:
    where = f" on {kernel.agent_id}" if kernel.agent_id else ""
    what = "nothing"
    if held is not None:
        what = f"{held.cpu:g} cores, {held.memory_bytes} bytes, {held.gpu} GPUs of {held.agent_id}"
    return f"kernel {kernel.index} of {kernel.session_id}, {kernel.status}{where}, holds {what}"
