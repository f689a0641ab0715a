"""Workflow tests run the real workflows and activities against a small world, in the time-skipping environment."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.payloads import data_converter
from tests.workflow.fleet import Fleet, program, register_search_attributes, running_fleet
from tests.workflow.world import World


@pytest.fixture
async def env() -> AsyncIterator[WorkflowEnvironment]:
    started = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=program("temporal-test-server"), data_converter=data_converter
    )
    async with started:
        await register_search_attributes(started.client)
        yield started


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="session")
async def dev_env() -> AsyncIterator[WorkflowEnvironment]:
    """It suggests to continue as new after 200 events and not 4,096."""
    started = await WorkflowEnvironment.start_local(
        dev_server_existing_path=program("temporal"),
        dev_server_extra_args=["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=200"],
        data_converter=data_converter,
    )
    async with started:
        await register_search_attributes(started.client)
        yield started


@pytest.fixture
async def fleet(env: WorkflowEnvironment, world: World) -> AsyncIterator[Fleet]:
    async with running_fleet(env, world) as fleet:
        yield fleet


@pytest.fixture
async def dev_fleet(dev_env: WorkflowEnvironment, world: World) -> AsyncIterator[Fleet]:
    """On Temporal's dev server: the time-skipping server loses the workflow task of a child that is cancelled in the same
    instant in which its activity was scheduled (60 of 60 such cancels end well on the dev server)."""
    async with running_fleet(dev_env, world) as fleet:
        yield fleet
