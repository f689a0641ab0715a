"""Sessions that others depend on."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from towline.domain.lifecycle import Reason, Status
from towline.domain.preconditions import Dependency
from towline.domain.sessions import SessionSpec
from towline.errors import FieldProblem, InvalidInputError
from towline.store.rows import KernelRow, SessionRow

_WOKEN_MAX: Final = 1000


async def dependencies_of(tx: AsyncSession, spec: SessionSpec) -> list[Dependency]:
    """How the sessions stand that it depends on, in the order in which it names them."""
    if not spec.depends_on:
        return []
    query = select(SessionRow).where(col(SessionRow.id).in_(spec.depends_on))
    known = {row.id: row for row in (await tx.execute(query)).scalars()}
    codes: dict[str, list[int | None]] = {id_: [] for id_ in known}
    ended = (col(KernelRow.session_id).in_(known), col(KernelRow.reason) == Reason.EXITED)
    for id_, code in await tx.execute(select(col(KernelRow.session_id), col(KernelRow.exit_code)).where(*ended)):
        codes[id_].append(code)
    return [_dependency(id_, known.get(id_), codes.get(id_, ())) for id_ in spec.depends_on]


async def refuse_unusable(tx: AsyncSession, spec: SessionSpec, *, anybodys: bool) -> None:
    """Raises `InvalidInputError` where a dependency is not a session of the owner (or, with `anybodys`, of anybody), or can
    never be done any more."""
    owned = select(col(SessionRow.id)).where(col(SessionRow.id).in_(spec.depends_on))
    if not anybodys:
        owned = owned.where(col(SessionRow.owner_id) == spec.owner_id)
    visible = set((await tx.execute(owned)).scalars()) if spec.depends_on else set()
    problems = [f"there is no session {id_}" for id_ in spec.depends_on if id_ not in visible]
    if not problems:
        failed = [one for one in await dependencies_of(tx, spec) if one.has_failed]
        problems = [f"session {one.session_id} {one.how}; only exit code 0 would let this one start" for one in failed]
    if problems:
        fields = tuple(FieldProblem(field="depends_on", problem=problem) for problem in problems)
        raise InvalidInputError("the session cannot depend on that", fields=fields)


async def dependents_of(tx: AsyncSession, session_id: str) -> tuple[str, ...]:
    """The sessions that were told to wait for this one, oldest first. Call it as `who_may_fit` is to be called."""
    # The status is a literal, and the containment as the index has it: a prepared plan could not use it otherwise.
    query = (
        select(col(SessionRow.id))
        .where(
            col(SessionRow.status) == text(f"'{Status.PENDING}'"),
            col(SessionRow.reason) == Reason.DEPENDENCY,
            col(SessionRow.spec)["depends_on"].contains([session_id]),
        )
        .order_by(col(SessionRow.created_at), col(SessionRow.id))
        .limit(_WOKEN_MAX)
    )
    return tuple((await tx.execute(query)).scalars())


def _dependency(session_id: str, row: SessionRow | None, codes: Sequence[int | None]) -> Dependency:
    if row is None:
        return Dependency(session_id=session_id, status=None)
    reason = Reason(row.reason) if row.reason else None
    return Dependency(session_id=session_id, status=Status(row.status), reason=reason, exit_codes=tuple(codes))
