"""Histories of lives that were really lived replay on today's code: a session in flight survives an upgrade."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from activities.payloads import data_converter
from tests.workflow.record_histories import AGENT, HISTORIES
from tests.workflow.scenarios import SCENARIOS
from workers.sandbox import sandboxed_runner
from workflows.agent import Agent
from workflows.kernel_start import KernelStart
from workflows.session import Session

RECORDED = sorted(HISTORIES.glob("*.json"))

ADVICE = """
{name} does not replay: sessions that are in flight would stand still after this change.
Gate it: `if workflow.patched("what-changed"): …new… else: …old…`, keep the old branch until no such session is open,
and record the new way beside the old (`python -m tests.workflow.record_histories`, under a new scenario name).
Only where no release has had the old way may the old history be recorded anew.
"""


def test_every_scenario_is_recorded() -> None:
    assert {path.name.split(".")[0] for path in RECORDED} == {*SCENARIOS, AGENT}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_replays(path: Path) -> None:
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    replayer = Replayer(
        workflows=[Session, KernelStart, Agent],
        workflow_runner=sandboxed_runner(),
        data_converter=data_converter,
    )
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    assert result.replay_failure is None, ADVICE.format(name=path.name) + str(result.replay_failure)


async def test_a_changed_order_is_noticed() -> None:
    """The test above can fail: a history whose first step is another does not replay."""
    path = HISTORIES / "happy_path.session.json"
    text = path.read_text().replace('"check_image"', '"check_picture"')
    replayer = Replayer(workflows=[Session], workflow_runner=sandboxed_runner(), data_converter=data_converter)
    result = await replayer.replay_workflow(WorkflowHistory.from_json("changed", text), raise_on_replay_failure=False)
    assert "Nondeterminism" in str(result.replay_failure)
