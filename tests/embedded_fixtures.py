"""A real PostgreSQL and a real Temporal for the whole run, and a fresh database for each test module."""

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from towline.embedded.postgres import running_postgres
from towline.embedded.temporal import running_temporal

_TEMPLATE = "migrated"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server's administrative database. Its directory is not pytest's: that is closed to other accounts each
    time that a pytest starts, and PostgreSQL runs as another account where we are root."""
    with tempfile.TemporaryDirectory(prefix="tl-postgres-") as directory:
        Path(directory).chmod(0o755)
        with running_postgres(Path(directory) / "data", durable=False) as url:
            yield _database(url, "postgres")


@pytest.fixture(scope="session")
def _migrated_template(postgres_server: str) -> str:
    from towline.store.migrate import upgrade

    _administer(postgres_server, SQL("CREATE DATABASE {}").format(Identifier(_TEMPLATE)))
    upgrade(_database(postgres_server, _TEMPLATE))
    return _TEMPLATE


@pytest.fixture(scope="module")
def postgres_url(postgres_server: str, _migrated_template: str) -> Iterator[str]:
    """A migrated database without rows."""
    yield from _fresh_database(postgres_server, _migrated_template)


@pytest.fixture(scope="module")
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """A database without tables."""
    yield from _fresh_database(postgres_server, "template1")


@pytest.fixture(scope="session")
def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dev server with the product's configuration."""
    with running_temporal(tmp_path_factory.mktemp("temporal")) as address:
        yield address


def _fresh_database(server: str, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    _administer(server, SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(template)))
    yield _database(server, name)
    _administer(server, SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def _administer(url: str, statement: psycopg.sql.Composed) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def _database(url: str, name: str) -> str:
    before, _, rest = url.partition("@/")
    return f"{before}@/{name}?{rest.partition('?')[2]}"
