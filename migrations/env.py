"""Alembic's environment: online only, one transaction for all migrations."""

from alembic import context
from sqlalchemy import create_engine, pool
from sqlmodel import SQLModel

from towline.store import rows

assert rows.SessionRow.metadata is SQLModel.metadata

engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "", poolclass=pool.NullPool)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=SQLModel.metadata, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()
