"""Which fleet these records are of."""

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.store.rows import FleetRow


async def is_our_fleet(tx: AsyncSession, fleet_id: str) -> bool:
    """Whether the records belong to this fleet; the first that is ever named is the one."""
    await tx.execute(insert(FleetRow).values(one=1, id=fleet_id).on_conflict_do_nothing(index_elements=["one"]))
    return (await tx.execute(select(col(FleetRow.id)))).scalar_one() == fleet_id
