"""fleet: the records know which Temporal namespace they belong to"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fleet",
        sa.Column("one", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.CheckConstraint("one = 1", name="fleet_one"),
    )


def downgrade() -> None:
    op.drop_table("fleet")
