"""Quotas: whose they are, what is used of them, who waits for them. Usage is always the sum of the ledger's rows."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from sqlalchemy import Select, and_, func, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased
from sqlmodel import col

from towline.domain.lifecycle import BEFORE_RUNNING, QUOTA_COUNTED, Reason, Status
from towline.domain.quotas import Account, Quota, Subject, Usage, Waiter, in_turn, shortfalls, usage_of
from towline.errors import NotFoundError
from towline.store.ledger import IN_TURN, in_front_of
from towline.store.rows import KernelRow, LedgerRow, QuotaRow, SessionRow, UserRow
from towline.store.specs import WISH_FIELDS, wish_from

_LOCKS: Final = 0x71756F74
"""The first half of the accounts' advisory locks."""

_PENDING: Final = tuple(status for status in BEFORE_RUNNING if status not in QUOTA_COUNTED)
_AHEAD_MAX: Final = 500
_WOKEN_MAX: Final = 100
EVERYBODY: Final = "user:*"


def user_key(user_id: str) -> str:
    """The account, and the quota's subject, of a user."""
    return f"user:{user_id}"


def project_key(name: str) -> str:
    """The account, and the quota's subject, of a project's users together."""
    return f"project:{name}"


@dataclass(frozen=True, kw_only=True)
class Book:
    """`keys`: of the accounts of each user, by user id; `accounts` by key. What has no quota has no account."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)

    def of(self, user_id: str) -> list[Account]:
        """The accounts that a user's sessions count against."""
        return [self.accounts[key] for key in self.keys.get(user_id, ())]


async def lock_accounts(tx: AsyncSession, owner_id: str) -> None:
    """Wait until no other transaction lets a session on, or stores one, that counts against the same accounts. Take them before
    any row's lock."""
    for key in sorted((await _limits(tx, [owner_id])).accounts):
        await tx.execute(text("SELECT pg_advisory_xact_lock(:locks, hashtext(:key))"), {"locks": _LOCKS, "key": key})


async def open_book(tx: AsyncSession, owner_ids: Collection[str], *, beside: str = "") -> Book:
    """The accounts of these users, with what is used of them; what the session `beside` uses is left out."""
    book = await _limits(tx, owner_ids)
    if not book.accounts:
        return book
    projects = [key.removeprefix("project:") for key in book.accounts if key.startswith("project:")]
    whose = or_(col(UserRow.id).in_(owner_ids), col(UserRow.project).in_(projects))
    accounts = dict(book.accounts)
    for user_id, project, *amounts in await tx.execute(_used(beside).where(whose)):
        sessions, cpu, memory_bytes, gpu = amounts
        more = Usage(sessions=sessions, cpu=float(cpu), memory_bytes=int(memory_bytes), gpu=int(gpu))
        for key in _present(accounts, user_id, project):
            accounts[key] = replace(accounts[key], used=accounts[key].used + more)
    for user_id, project, pending in await tx.execute(_pending(beside).where(whose)):
        for key in _present(accounts, user_id, project):
            accounts[key] = replace(accounts[key], pending=accounts[key].pending + pending)
    return replace(book, accounts=accounts)


def _present(accounts: Mapping[str, Account], user_id: str, project: str | None) -> Iterable[str]:
    keys = [user_key(user_id)] + ([] if project is None else [project_key(project)])
    return [key for key in keys if key in accounts]


async def _limits(tx: AsyncSession, owner_ids: Collection[str]) -> Book:
    """A user's own quota goes before that of everybody; the project's comes in addition."""
    own, everybody, shared = aliased(QuotaRow), aliased(QuotaRow), aliased(QuotaRow)
    query = (
        select(col(UserRow.id), col(UserRow.name), col(UserRow.project), own, everybody, shared)
        .outerjoin(own, col(own.subject) == literal("user:").concat(col(UserRow.id)))
        .outerjoin(everybody, col(everybody.subject) == EVERYBODY)
        .outerjoin(shared, col(shared.subject) == literal("project:").concat(col(UserRow.project)))
        .where(col(UserRow.id).in_(owner_ids))
    )
    keys: dict[str, tuple[str, ...]] = {}
    accounts: dict[str, Account] = {}
    for user_id, name, project, mine, default, ours in await tx.execute(query):
        found = {
            user_key(user_id): (Subject(kind="user", name=name), mine or default),
            project_key(project or ""): (Subject(kind="project", name=project or ""), ours),
        }
        limits = {key: Account(subject=subject, quota=quota_of(row)) for key, (subject, row) in found.items() if row}
        keys[user_id] = tuple(limits)
        accounts |= limits
    return Book(keys=keys, accounts=accounts)


def quota_of(row: QuotaRow) -> Quota:
    """The limits of a row."""
    return Quota(**{limit.name: getattr(row, limit.name) for limit in fields(Quota)})


def _used(beside: str) -> Select[*tuple[Any, ...]]:
    counted = (
        col(LedgerRow.freed_at).is_(None),
        col(LedgerRow.session_id) != beside,
        col(KernelRow.status).in_(QUOTA_COUNTED),
    )
    return (
        select(
            col(UserRow.id),
            col(UserRow.project),
            func.count(col(LedgerRow.session_id).distinct()),
            func.sum(LedgerRow.cpu),
            func.sum(LedgerRow.memory_bytes),
            func.sum(LedgerRow.gpu),
        )
        .select_from(LedgerRow)
        .join(
            KernelRow,
            and_(
                col(KernelRow.session_id) == col(LedgerRow.session_id),
                col(KernelRow.index) == col(LedgerRow.kernel),
            ),
        )
        .join(SessionRow, col(SessionRow.id) == col(LedgerRow.session_id))
        .join(UserRow, col(UserRow.id) == col(SessionRow.owner_id))
        .where(*counted)
        .group_by(col(UserRow.id))
    )


def _pending(beside: str) -> Select[*tuple[Any, ...]]:
    return (
        select(col(UserRow.id), col(UserRow.project), func.count())
        .join(SessionRow, col(SessionRow.owner_id) == col(UserRow.id))
        .where(col(SessionRow.status).in_(_PENDING), col(SessionRow.id) != beside)
        .group_by(col(UserRow.id))
    )


async def shortage(tx: AsyncSession, session: SessionRow) -> str:
    """What the session has to wait for, as a sentence; empty: its owner's quotas have room. Call it with the accounts locked."""
    own = await open_book(tx, [session.owner_id], beside=session.id)
    mine = own.of(session.owner_id)
    if not mine:
        return ""
    wish = wish_from([session.spec[name] for name in WISH_FIELDS])
    usage = usage_of(wish.kernels, wish.resources)
    if short := [violation for account in mine for violation in shortfalls(account, usage)]:
        return f"the quota is used up: {'; '.join(map(str, short))}"
    rows = await _waiting(tx, session.owner_id, *in_front_of(session))
    book = await open_book(tx, {session.owner_id, *(owner for _, owner, _ in rows)}, beside=session.id)
    me = Waiter(session_id=session.id, usage=usage, keys=book.keys[session.owner_id])
    served = in_turn([*_waiters(rows, book), me], book.accounts, limit=len(rows) + 1)
    if session.id in served:
        return ""
    return f"what is free of the quota goes to {len(served)} session{'' if len(served) == 1 else 's'} that came before"


async def admissible(tx: AsyncSession, owner_id: str | None = None) -> tuple[str, ...]:
    """Those of the waiting sessions that there is room for now, in turn: of all, or of those that share an account with a user.

    Call it in a transaction that begins after the one that made room, with the user's accounts locked: then a session that did
    not see the room is already known to wait.
    """
    rows = await _waiting(tx, owner_id)
    book = await open_book(tx, {owner for _, owner, _ in rows}) if rows else Book()
    return in_turn(_waiters(rows, book), book.accounts, limit=_WOKEN_MAX)


_Waiting = tuple[str, str, Usage]


async def _waiting(tx: AsyncSession, owner_id: str | None, *conditions: Any) -> list[_Waiting]:
    """Session id, owner and usage of those that wait for the quotas of a user or their project, in turn."""
    # Status and reason are literals: with parameters, a prepared plan could not use the partial index.
    query: Select[*tuple[Any, ...]] = (
        select(col(SessionRow.id), col(SessionRow.owner_id), *(col(SessionRow.spec)[name] for name in WISH_FIELDS))
        .where(
            col(SessionRow.status) == text(f"'{Status.PREPARED}'"),
            col(SessionRow.reason) == text(f"'{Reason.QUOTA}'"),
            *conditions,
        )
        .order_by(*IN_TURN)
        .limit(_AHEAD_MAX)
    )
    if owner_id is not None:
        project = select(col(UserRow.project)).where(col(UserRow.id) == owner_id).scalar_subquery()
        query = query.join(UserRow, col(UserRow.id) == col(SessionRow.owner_id)).where(
            or_(col(UserRow.id) == owner_id, col(UserRow.project) == project)
        )
    found: list[_Waiting] = []
    for row in await tx.execute(query):
        wish = wish_from(row[2:])
        found.append((row[0], row[1], usage_of(wish.kernels, wish.resources)))
    return found


def _waiters(rows: Iterable[_Waiting], book: Book) -> list[Waiter]:
    return [Waiter(session_id=id_, usage=usage, keys=book.keys.get(owner, ())) for id_, owner, usage in rows]


async def _key_of(tx: AsyncSession, subject: Subject) -> str:
    if subject.kind == "project":
        return project_key(subject.name)
    if subject.name == "*":
        return EVERYBODY
    user_id = (await tx.execute(select(col(UserRow.id)).where(col(UserRow.name) == subject.name))).scalar()
    if user_id is None:
        raise NotFoundError(f"there is no user {subject.name}")
    return user_key(user_id)


async def set_quota(tx: AsyncSession, subject: Subject, quota: Quota) -> None:
    """Set all limits of a quota. What runs already goes on. Raises `NotFoundError` for a user that there is not."""
    await tx.merge(QuotaRow(subject=await _key_of(tx, subject), **asdict(quota)))


async def remove_quota(tx: AsyncSession, subject: Subject) -> None:
    """Lift all limits of a quota. Raises `NotFoundError` where there is none."""
    row = await tx.get(QuotaRow, await _key_of(tx, subject))
    if row is None:
        raise NotFoundError(f"there is no quota of {subject.kind} {subject.name}")
    await tx.delete(row)


async def list_quotas(tx: AsyncSession) -> list[Account]:
    """Every quota, and what is used of it; of everybody's, nothing is."""
    users = {row.id: row.name for row in (await tx.execute(select(UserRow))).scalars()}
    rows = list((await tx.execute(select(QuotaRow).order_by(col(QuotaRow.subject)))).scalars())
    book = await open_book(tx, users)
    return [book.accounts.get(row.subject) or _unused(row, users) for row in rows]


def _unused(row: QuotaRow, users: Mapping[str, str]) -> Account:
    kind, _, name = row.subject.partition(":")
    shown = users.get(name, name) if kind == "user" else name
    return Account(subject=Subject(kind=kind, name=shown), quota=quota_of(row))
