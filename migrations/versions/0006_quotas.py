"""quotas of users and projects"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

LIMITS = ("sessions", "cpu", "memory_bytes", "gpu", "pending", "kernels", "lifetime_seconds", "priority")
WAITING = sa.text("status = 'PREPARED' AND reason = 'quota'")


def upgrade() -> None:
    op.add_column("users", sa.Column("project", sa.String(), nullable=True))
    op.create_index("ix_users_project", "users", ["project"])
    op.create_table(
        "quotas",
        sa.Column("subject", sa.String(), primary_key=True),
        sa.Column("sessions", sa.Integer(), nullable=True),
        sa.Column("cpu", sa.Float(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("gpu", sa.Integer(), nullable=True),
        sa.Column("pending", sa.Integer(), nullable=True),
        sa.Column("kernels", sa.Integer(), nullable=True),
        sa.Column("lifetime_seconds", sa.Float(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.CheckConstraint(" AND ".join(f"{name} >= 0" for name in LIMITS), name="quotas_limits"),
    )
    op.create_index(
        "sessions_by_quota", "sessions", [sa.text("priority DESC"), "created_at", "id"], postgresql_where=WAITING
    )


def downgrade() -> None:
    op.drop_index("sessions_by_quota", table_name="sessions", postgresql_where=WAITING)
    op.drop_table("quotas")
    op.drop_index("ix_users_project", table_name="users")
    op.drop_column("users", "project")
