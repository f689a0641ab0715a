"""The schema: the migrations make what the rows say, once however many start, and the database refuses what must not be."""

import threading
from typing import Any

import psycopg
import pytest
from alembic import command
from psycopg.rows import tuple_row
from sqlalchemy import create_engine
from sqlmodel import SQLModel

from towline.store import rows
from towline.store.database import sqlalchemy_url
from towline.store.migrate import config_for, upgrade

COLUMNS = """
    SELECT table_name, column_name, data_type, is_nullable, is_identity FROM information_schema.columns
    WHERE table_schema = 'public' ORDER BY 1, 2
"""
CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2
"""
INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2"


def schema_of(url: str) -> list[tuple[Any, ...]]:
    """Columns, constraints and indexes as Postgres itself tells them."""
    with psycopg.connect(url, row_factory=tuple_row) as connection:
        found = [row for query in (COLUMNS, CONSTRAINTS, INDEXES) for row in connection.execute(query)]
    return [row for row in found if row[0] != "alembic_version"]


def test_the_migrations_make_what_the_rows_say(postgres_url: str, empty_postgres_url: str) -> None:
    engine = create_engine(sqlalchemy_url(empty_postgres_url))
    rows.SessionRow.metadata.create_all(engine)
    declared = schema_of(empty_postgres_url)
    SQLModel.metadata.drop_all(engine)
    engine.dispose()
    assert declared
    assert schema_of(postgres_url) == declared


def test_the_way_back_leads_to_the_same_schema_again(empty_postgres_url: str, postgres_url: str) -> None:
    upgrade(empty_postgres_url)
    command.downgrade(config_for(empty_postgres_url), "base")
    assert schema_of(empty_postgres_url) == []
    upgrade(empty_postgres_url)
    assert schema_of(empty_postgres_url) == schema_of(postgres_url)
    command.downgrade(config_for(empty_postgres_url), "base")


def test_of_several_that_start_at_once_one_migrates(empty_postgres_url: str, postgres_url: str) -> None:
    failures: list[BaseException] = []

    def start() -> None:
        try:
            upgrade(empty_postgres_url)
        except Exception as error:
            failures.append(error)

    starters = [threading.Thread(target=start) for _ in range(5)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert failures == []
    assert schema_of(empty_postgres_url) == schema_of(postgres_url)


GOOD: dict[str, dict[str, Any]] = {
    "users": {"id": "u", "name": "u", "role": "user", "created_at": "now"},
    "tokens": {"id": "t", "user_id": "u", "hash": b"h", "name": "", "created_at": "now"},
    "sessions": {
        "id": "s",
        "owner_id": "u",
        "kind": "batch",
        "image": "i",
        "spec": "{}",
        "labels": "{}",
        "priority": 10,
        "status": "PENDING",
        "message": "",
        "ended_why": "",
        "body_hash": b"",
        "events": 0,
        "created_at": "now",
        "updated_at": "now",
    },
    "agents": {
        "id": "a",
        "boot_id": "b",
        "status": "ONLINE",
        "cordoned": False,
        "cpu": 1,
        "memory_bytes": 1,
        "gpu": 0,
        "platform": "",
        "engine_version": "",
        "store_kind": "",
        "labels": "{}",
        "seen_at": "now",
    },
    "kernels": {
        "session_id": "s",
        "index": 0,
        "status": "PENDING",
        "message": "",
        "stale": False,
        "oom_killed": False,
        "ports": "{}",
        "log_total_bytes": 0,
        "log_truncated": False,
    },
    "events": {
        "session_id": "s",
        "seq": 1,
        "at": "now",
        "kind": "note",
        "session_status": "PENDING",
        "message": "",
        "note_key": "k",
    },
    "ledger": {
        "session_id": "s",
        "kernel": 0,
        "agent_id": "a",
        "cpu": 1,
        "memory_bytes": 1,
        "gpu": 0,
        "reserved_at": "now",
    },
}
"""A row for each table that the database takes, in the order of the references."""

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("users", {"role": "root"}, "users_role"),
    ("users", {"id": "v", "name": "u"}, "users_name_key"),
    ("tokens", {"id": "v", "hash": b"h"}, "tokens_hash_key"),
    ("tokens", {"id": "v", "hash": b"v", "user_id": "nobody"}, "tokens_user_id_fkey"),
    ("sessions", {"status": "NOT A STATUS"}, "sessions_status"),
    ("sessions", {"status": "CANCELLED"}, "sessions_ended"),
    ("sessions", {"ended_at": "now"}, "sessions_ended"),
    ("sessions", {"kind": "cron"}, "sessions_kind"),
    ("sessions", {"priority": 101}, "sessions_priority"),
    ("sessions", {"priority": -1}, "sessions_priority"),
    ("sessions", {"events": -1}, "sessions_events"),
    ("sessions", {"id": "v", "owner_id": "nobody"}, "sessions_owner_id_fkey"),
    ("kernels", {"status": "PAUSED"}, "kernels_status"),
    ("kernels", {"status": "ERROR"}, "kernels_ended"),
    ("kernels", {"index": -1}, "kernels_index"),
    ("kernels", {"log_total_bytes": -1}, "kernels_log"),
    ("kernels", {"session_id": "none"}, "kernels_session_id_fkey"),
    ("events", {"seq": 0}, "events_seq"),
    ("events", {"session_status": "GONE"}, "events_statuses"),
    ("events", {"from_status": "GONE"}, "events_statuses"),
    ("events", {"kind": "transition"}, "events_transition"),
    ("events", {"kernel": 0, "from_status": "PENDING", "to_status": "ERROR"}, "events_transition"),
    ("events", {"seq": 2}, "events_note"),
    ("events", {"note_key": None}, "events_pkey"),
    ("agents", {"status": "AWAY"}, "agents_status"),
    ("agents", {"memory_bytes": -1}, "agents_capacity"),
    ("ledger", {"cpu": -0.5}, "ledger_amounts"),
    ("ledger", {"gpu": -1}, "ledger_amounts"),
    ("ledger", {"kernel": 1, "agent_id": "none"}, "ledger_agent_id_fkey"),
    ("ledger", {}, "ledger_one_hold"),
]


def insert(connection: psycopg.Connection[Any], table: str, values: dict[str, Any]) -> None:
    names = ", ".join(f'"{name}"' for name in values)
    places = ", ".join("%s" for _ in values)
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", list(values.values()))


@pytest.mark.parametrize(("table", "change", "constraint"), BAD)
def test_the_database_refuses(postgres_url: str, table: str, change: dict[str, Any], constraint: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for name, good in GOOD.items():
            insert(connection, name, good)
        with pytest.raises(psycopg.errors.IntegrityError) as refused:
            insert(connection, table, GOOD[table] | change)
        assert refused.value.diag.constraint_name == constraint
        connection.rollback()


def test_a_kernel_can_be_placed_anew_once_it_holds_nothing(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for name, good in GOOD.items():
            insert(connection, name, good)
        connection.execute("UPDATE ledger SET freed_at = now()")
        insert(connection, "ledger", GOOD["ledger"])
        connection.rollback()
