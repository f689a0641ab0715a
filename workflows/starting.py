"""Starting workflows from outside: the one place that knows their arguments."""

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from towline.domain.queues import CONTROL_QUEUE, WorkflowName, agent_workflow_id, session_workflow_id
from towline.domain.sessions import SessionSpec
from workflows import options
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


async def start_agent(client: Client, agent_id: str, *, grace: timedelta = options.AGENT_LOST_GRACE) -> None:
    """See to it that the agent's workflow runs. Raises `temporalio.service.RPCError` when Temporal does not answer."""
    await client.start_workflow(
        WorkflowName.AGENT,
        AgentState(agent_id=agent_id, grace=grace),
        id=agent_workflow_id(agent_id),
        task_queue=CONTROL_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"agent {agent_id}",
    )
