"""The workflow sandbox of tests and replays, kept cheap."""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

PASSED_THROUGH = (
    "towline",
    "activities",
    "pydantic",
    "pydantic_core",
    "workflows.display",
    "workflows.options",
    "workflows.state",
)
"""Modules that workflows share with the process. They are pure (import contracts keep them so); without this every workflow
instance would import them anew, which costs hundreds of milliseconds. Of the workflows' own modules those that hold values
and take no decision; a state whose class is new for each instance would also need a new pydantic schema for each."""


def sandboxed_runner() -> SandboxedWorkflowRunner:
    """The runner of every workflow test and replay; production runs without (`workers/control.py`)."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))
