"""The embedded servers, for real: what is kept, what is registered, what is refused."""

import subprocess
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from towline.domain.queues import SearchAttribute
from towline.embedded.directory import DirectoryInUseError
from towline.embedded.foreign_user import server_user
from towline.embedded.postgres import running_postgres
from towline.embedded.temporal import register, running_temporal
from towline.errors import UnavailableError


def test_postgres_keeps_its_data(tmp_path: Path) -> None:
    with running_postgres(tmp_path) as url, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    with running_postgres(tmp_path) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


def test_postgres_listens_on_no_port(postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_postgres_starts_over_a_pid_file_whose_pid_is_now_another_process(tmp_path: Path) -> None:
    with running_postgres(tmp_path):
        pid_file = (tmp_path / "postgres" / "postmaster.pid").read_text()
    # Of the server's own account: only such a process makes the server refuse to start.
    with subprocess.Popen(("sleep", "60"), user=server_user()) as other:
        stale = "\n".join([str(other.pid), *pid_file.splitlines()[1:]])
        (tmp_path / "postgres" / "postmaster.pid").write_text(stale)
        with running_postgres(tmp_path) as url, psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert other.poll() is None
        other.kill()


def test_postgres_in_a_deep_directory_has_its_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with running_postgres(deep) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_directory_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with (
        running_postgres(tmp_path, durable=False),
        pytest.raises(DirectoryInUseError, match=str(tmp_path)),
        running_postgres(tmp_path),
    ):
        pass


def test_a_cluster_of_an_unknown_version_is_refused_with_the_version(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(UnavailableError, match="PostgreSQL 9"), running_postgres(tmp_path):
        pass


async def test_temporal_is_configured_and_stays_so(tmp_path: Path) -> None:
    for _ in range(2):  # The second time the database is there already.
        with running_temporal(tmp_path) as address:
            await register(address)
            client = await Client.connect(address)
            listed = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace="default")
            )
            assert {attribute.value for attribute in SearchAttribute} <= set(listed.custom_attributes)
            described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
            assert described.config.workflow_execution_retention_ttl.ToTimedelta() == timedelta(hours=168)
