"""sessions that depend on others, found by what they depend on"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

WAITING = sa.text("status = 'PENDING'")


def upgrade() -> None:
    op.create_index(
        "sessions_dependents",
        "sessions",
        [sa.text("(spec -> 'depends_on')")],
        postgresql_using="gin",
        postgresql_where=WAITING,
    )


def downgrade() -> None:
    op.drop_index("sessions_dependents", table_name="sessions", postgresql_where=WAITING)
