"""guards: what must hold is held by the database; a kernel can be placed anew; whose turn it is has an index"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATUSES = "'PENDING', 'SCHEDULED', 'PREPARING', 'PULLING', 'PREPARED', 'CREATING', 'RUNNING', 'TERMINATING', 'TERMINATED', 'CANCELLED', 'ERROR'"
ENDED = "(status IN ('TERMINATED', 'CANCELLED', 'ERROR')) = (ended_at IS NOT NULL)"
CHECKS = [
    ("sessions", "sessions_ended", ENDED),
    ("sessions", "sessions_kind", "kind IN ('batch', 'interactive')"),
    ("sessions", "sessions_priority", "priority BETWEEN 0 AND 100"),
    ("sessions", "sessions_events", "events >= 0"),
    ("kernels", "kernels_ended", ENDED),
    ("kernels", "kernels_index", "index >= 0"),
    ("kernels", "kernels_log", "log_total_bytes >= 0"),
    ("events", "events_seq", "seq >= 1"),
    (
        "events",
        "events_statuses",
        f"from_status IN ({STATUSES}) AND to_status IN ({STATUSES}) AND session_status IN ({STATUSES})",
    ),
    (
        "events",
        "events_transition",
        "(kind = 'transition') = (kernel IS NOT NULL AND from_status IS NOT NULL AND to_status IS NOT NULL)",
    ),
]
HELD = sa.text("freed_at IS NULL")


def upgrade() -> None:
    for table, name, condition in CHECKS:
        op.create_check_constraint(name, table, condition)
    op.create_index(
        "sessions_by_turn",
        "sessions",
        [sa.text("priority DESC"), "created_at", "id"],
        postgresql_where=sa.text("status = 'PENDING'"),
    )
    op.add_column("tokens", sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))
    op.drop_constraint("ledger_pkey", "ledger")
    op.add_column("ledger", sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False))
    op.create_primary_key("ledger_pkey", "ledger", ["id"])
    op.create_index("ledger_one_hold", "ledger", ["session_id", "kernel"], unique=True, postgresql_where=HELD)


def downgrade() -> None:
    op.drop_index("ledger_one_hold", table_name="ledger", postgresql_where=HELD)
    op.drop_constraint("ledger_pkey", "ledger")
    op.drop_column("ledger", "id")
    # The former schema knows one row per kernel: the newest.
    op.execute("DELETE FROM ledger a USING ledger b WHERE (a.session_id, a.kernel) = (b.session_id, b.kernel) AND a.reserved_at < b.reserved_at")
    op.create_primary_key("ledger_pkey", "ledger", ["session_id", "kernel"])
    op.drop_column("tokens", "last_used_at")
    op.drop_index("sessions_by_turn", table_name="sessions", postgresql_where=sa.text("status = 'PENDING'"))
    for table, name, _ in reversed(CHECKS):
        op.drop_constraint(name, table)
