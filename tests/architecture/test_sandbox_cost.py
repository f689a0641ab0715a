"""A sandboxed workflow instance stays cheap: that keeps heavy imports out of workflows, and it is paid for every test and replay."""

import statistics
import time

import pytest
from temporalio import workflow

from workers.sandbox import sandboxed_runner
from workflows.agent import Agent
from workflows.kernel_start import KernelStart
from workflows.session import Session

BUDGET_SECONDS = 0.1


@pytest.mark.parametrize("kind", [Session, KernelStart, Agent])
async def test_an_instance_costs_little(kind: type) -> None:
    definition = workflow._Definition.must_from_class(kind)  # The SDK has no public way to one.
    runner = sandboxed_runner()

    def seconds() -> float:
        begin = time.perf_counter()
        runner.prepare_workflow(definition)
        return time.perf_counter() - begin

    seconds()
    assert statistics.median(seconds() for _ in range(7)) < BUDGET_SECONDS
