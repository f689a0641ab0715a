"""Bringing a database to this version's schema."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

from towline.store.database import sqlalchemy_url

MIGRATIONS: Final = Path(__file__).resolve().parents[2] / "migrations"
_LOCK: Final = 0x746F6D69
"""Advisory lock: when several processes start at once, one migrates and the others wait."""


def config_for(url: str) -> Config:
    """Alembic's configuration for a database."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    # A percent sign would be taken for interpolation.
    config.set_main_option("sqlalchemy.url", sqlalchemy_url(url).replace("%", "%%"))
    return config


def upgrade(url: str) -> None:
    """Run the migrations that are missing. Raises what the driver raises when the database cannot be reached."""
    engine = create_engine(sqlalchemy_url(url))
    try:
        with engine.connect() as lock:
            lock.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            command.upgrade(config_for(url), "head")
    finally:
        engine.dispose()
