"""first schema"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("cordoned", sa.Boolean(), nullable=False),
        sa.Column("cpu", sa.Float(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.Integer(), nullable=False),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("engine_version", sa.String(), nullable=False),
        sa.Column("store_kind", sa.String(), nullable=False),
        sa.Column("labels", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("status IN ('ONLINE', 'LOST')", name="agents_status"),
        sa.CheckConstraint("cpu >= 0 AND memory_bytes >= 0 AND gpu >= 0", name="agents_capacity"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("role IN ('superadmin', 'user')", name="users_role"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("image", sa.String(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("labels", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("ended_by", sa.String(), nullable=True),
        sa.Column("ended_why", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("body_hash", sa.LargeBinary(), nullable=False),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('PENDING', 'SCHEDULED', 'PREPARING', 'PULLING', 'PREPARED', 'CREATING', 'RUNNING', 'TERMINATING', 'TERMINATED', 'CANCELLED', 'ERROR')",
            name="sessions_status",
        ),
        sa.ForeignKeyConstraint(
            ["owner_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner_id", "idempotency_key", name="sessions_idempotency"),
    )
    op.create_index(op.f("ix_sessions_image"), "sessions", ["image"], unique=False)
    op.create_index("sessions_by_age", "sessions", ["created_at", "id"], unique=False)
    op.create_index("sessions_by_owner", "sessions", ["owner_id", "created_at", "id"], unique=False)
    op.create_index("sessions_by_status", "sessions", ["status", "created_at", "id"], unique=False)
    op.create_index("sessions_labels", "sessions", ["labels"], unique=False, postgresql_using="gin")
    op.create_index(
        "sessions_undispatched",
        "sessions",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("dispatched_at IS NULL"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_index(op.f("ix_tokens_user_id"), "tokens", ["user_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("kernel", sa.Integer(), nullable=True),
        sa.Column("from_status", sa.String(), nullable=True),
        sa.Column("to_status", sa.String(), nullable=True),
        sa.Column("session_status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("note_key", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "seq"),
    )
    op.create_index("events_note", "events", ["session_id", "note_key"], unique=True)
    op.create_table(
        "kernels",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=True),
        sa.Column("stale", sa.Boolean(), nullable=False),
        sa.Column("container_id", sa.String(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("oom_killed", sa.Boolean(), nullable=False),
        sa.Column("ports", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("log_tail", sa.LargeBinary(), nullable=True),
        sa.Column("log_total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_truncated", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "status IN ('PENDING', 'SCHEDULED', 'PREPARING', 'PULLING', 'PREPARED', 'CREATING', 'RUNNING', 'TERMINATING', 'TERMINATED', 'CANCELLED', 'ERROR')",
            name="kernels_status",
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "index"),
    )
    op.create_index("kernels_by_agent", "kernels", ["agent_id", "status"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("kernel", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("cpu", sa.Float(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gpu", sa.Integer(), nullable=False),
        sa.Column("reserved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("freed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("cpu >= 0 AND memory_bytes >= 0 AND gpu >= 0", name="ledger_amounts"),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "kernel"),
    )
    op.create_index("ledger_held", "ledger", ["agent_id"], unique=False, postgresql_where=sa.text("freed_at IS NULL"))


def downgrade() -> None:
    op.drop_index("ledger_held", table_name="ledger", postgresql_where=sa.text("freed_at IS NULL"))
    op.drop_table("ledger")
    op.drop_index("kernels_by_agent", table_name="kernels")
    op.drop_table("kernels")
    op.drop_index("events_note", table_name="events")
    op.drop_table("events")
    op.drop_index(op.f("ix_tokens_user_id"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_index("sessions_undispatched", table_name="sessions", postgresql_where=sa.text("dispatched_at IS NULL"))
    op.drop_index("sessions_labels", table_name="sessions", postgresql_using="gin")
    op.drop_index("sessions_by_status", table_name="sessions")
    op.drop_index("sessions_by_owner", table_name="sessions")
    op.drop_index("sessions_by_age", table_name="sessions")
    op.drop_index(op.f("ix_sessions_image"), table_name="sessions")
    op.drop_table("sessions")
    op.drop_table("users")
    op.drop_table("agents")
