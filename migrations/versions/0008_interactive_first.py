"""interactive sessions are served before batch ones"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

WAITING = {"sessions_by_turn": "status = 'PENDING'", "sessions_by_quota": "status = 'PREPARED' AND reason = 'quota'"}
BEFORE = ("priority DESC", "created_at", "id")
AFTER = ("(kind = 'interactive') DESC", *BEFORE)


def upgrade() -> None:
    _index(AFTER)


def downgrade() -> None:
    _index(BEFORE)


def _index(order: tuple[str, ...]) -> None:
    for name, waiting in WAITING.items():
        op.drop_index(name, table_name="sessions", postgresql_where=sa.text(waiting))
        op.create_index(name, "sessions", [sa.text(part) for part in order], postgresql_where=sa.text(waiting))
