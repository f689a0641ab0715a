"""How a worker reaches Temporal."""

import logging
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig
from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception_type, wait_exponential

from activities.payloads import data_converter

_log = logging.getLogger(__name__)


async def connect(address: str, namespace: str, *, identity: str) -> Client:
    """Connect, waiting for as long as Temporal is not there yet."""
    # Worker heartbeating is what lets the server push cancellations to running activities, within milliseconds.
    runtime = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=timedelta(seconds=5))
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(RuntimeError),
        wait=wait_exponential(multiplier=0.2, max=5),
        before_sleep=before_sleep_log(_log, logging.WARNING),
    ):
        with attempt:
            return await Client.connect(
                address,
                namespace=namespace,
                identity=identity,
                data_converter=data_converter,
                runtime=runtime,
            )
    raise AssertionError("tenacity without a stop gives up only by raising")


async def fleet_id(client: Client) -> str:
    """One per installation: the id of Temporal's namespace, which no other has."""
    answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    return answer.namespace_info.id
