"""agents: their engine can be down, they can be drained, and their past is kept"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

KINDS = "'online', 'engine-down', 'lost', 'cordoned', 'draining', 'uncordoned'"


def upgrade() -> None:
    op.drop_constraint("agents_status", "agents")
    op.create_check_constraint("agents_status", "agents", "status IN ('ONLINE', 'ENGINE_DOWN', 'LOST')")
    op.add_column("agents", sa.Column("message", sa.String(), nullable=False, server_default=""))
    op.add_column("agents", sa.Column("draining", sa.Boolean(), nullable=False, server_default="false"))
    op.create_check_constraint("agents_draining", "agents", "cordoned OR NOT draining")
    op.add_column("agents", sa.Column("drain_deadline", sa.DateTime(timezone=True), nullable=True))
    op.add_column("agents", sa.Column("resource_group", sa.String(), nullable=False, server_default=""))
    op.create_table(
        "agent_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("agent_id", sa.String(), sa.ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.CheckConstraint(f"kind IN ({KINDS})", name="agent_events_kind"),
    )
    op.create_index("agent_events_by_agent", "agent_events", ["agent_id", "id"])


def downgrade() -> None:
    op.drop_table("agent_events")
    op.drop_constraint("agents_draining", "agents")
    for column in ("message", "draining", "drain_deadline", "resource_group"):
        op.drop_column("agents", column)
    op.execute("UPDATE agents SET status = 'LOST' WHERE status = 'ENGINE_DOWN'")
    op.drop_constraint("agents_status", "agents")
    op.create_check_constraint("agents_status", "agents", "status IN ('ONLINE', 'LOST')")
