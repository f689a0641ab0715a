"""Workflow tests run the real workflows and activities against a small world, in the time-skipping environment."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tests.workflow.fleet import Fleet, program, register_search_attributes, workers_of
from tests.workflow.world import World


@pytest.fixture(scope="session")
async def env() -> AsyncIterator[WorkflowEnvironment]:
    started = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=program("temporal-test-server"), data_converter=pydantic_data_converter
    )
    async with started:
        await register_search_attributes(started.client)
        yield started


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def fleet(env: WorkflowEnvironment, world: World) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        for worker in workers_of(env.client, world, ("a1", "a2")):
            await stack.enter_async_context(worker)
        yield Fleet(client=env.client, world=world, env=env)
