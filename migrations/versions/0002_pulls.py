"""pulls"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pulls",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("image", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("bytes_pulled", sa.BigInteger(), nullable=False),
        sa.Column("bytes_present", sa.BigInteger(), nullable=False),
        sa.Column("retried_bytes", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("outcome IN ('running', 'succeeded', 'failed', 'aborted')", name="pulls_outcome"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_pulls_agent_id"), "pulls", ["agent_id"], unique=False)
    op.create_index("pulls_by_age", "pulls", ["started_at", "id"], unique=False)
    op.create_table(
        "pull_waits",
        sa.Column("pull_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("left_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("outcome IN ('waiting', 'succeeded', 'failed', 'left')", name="pull_waits_outcome"),
        sa.ForeignKeyConstraint(["pull_id"], ["pulls.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pull_id", "session_id"),
    )
    op.create_index(op.f("ix_pull_waits_session_id"), "pull_waits", ["session_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_pull_waits_session_id"), table_name="pull_waits")
    op.drop_table("pull_waits")
    op.drop_index("pulls_by_age", table_name="pulls")
    op.drop_index(op.f("ix_pulls_agent_id"), table_name="pulls")
    op.drop_table("pulls")
