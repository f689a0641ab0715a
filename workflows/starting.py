"""Starting workflows from outside: the one place that knows their arguments."""

from typing import Any

from temporalio.client import Client, WithStartWorkflowOperation, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from towline.domain.agents import Claim
from towline.domain.queues import CLAIM, CONTROL_QUEUE, WorkflowName, agent_workflow_id, session_workflow_id
from towline.domain.sessions import SessionSpec
from towline.errors import ConflictError
from workflows.agent import AgentState
from workflows.display import attributes_at_start, summary_of
from workflows.state import SessionState


async def start_session(client: Client, spec: SessionSpec) -> None:
    """Start a session's workflow; a session that was started before is left alone, also when it has ended.

    Raises `temporalio.service.RPCError` when Temporal does not answer.
    """
    try:
        await client.start_workflow(
            WorkflowName.SESSION,
            SessionState(spec=spec),
            id=session_workflow_id(spec.session_id),
            task_queue=CONTROL_QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            search_attributes=attributes_at_start(spec),
            static_summary=summary_of(spec),
        )
    except WorkflowAlreadyStartedError:
        return


async def claim_agent(client: Client, agent_id: str, claim: Claim) -> None:
    """See to it that the agent's workflow runs, and that this worker is the one that serves the agent.

    Raises `ConflictError` when another worker does, and `temporalio.service.RPCError` when Temporal does not answer.
    """
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        WorkflowName.AGENT,
        AgentState(agent_id=agent_id),
        id=agent_workflow_id(agent_id),
        task_queue=CONTROL_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"agent {agent_id}",
    )
    try:
        await client.execute_update_with_start_workflow(CLAIM, claim, start_workflow_operation=start, id=claim.boot_id)
    except WorkflowUpdateFailedError as error:
        raise ConflictError(f"{error.cause}; stop it, or choose another id") from error
