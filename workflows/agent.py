"""An agent's presence as one durable workflow: online while its long activity heartbeats, lost after a grace."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from towline.domain.queues import ActivityName, WorkflowName, container_queue
from towline.domain.records import AgentFacts, Finished, RecordAgent
from workflows import options
from workflows.chronicle import wake


@dataclass(kw_only=True)
class AgentState:
    """The workflow's whole state. `facts` None: the agent has not said hello yet. `grace`: from silence to lost."""

    agent_id: str
    facts: AgentFacts | None = None
    online: bool = False
    grace: timedelta = options.AGENT_LOST_GRACE


@workflow.defn(name=WorkflowName.AGENT)
class Agent:
    """Owns whether an agent is online."""

    @workflow.init
    def __init__(self, state: AgentState) -> None:
        self._state = state
        self._unrecorded = False

    @workflow.run
    async def run(self, state: AgentState) -> None:
        """Runs for as long as there is an agent with this id."""
        while not workflow.info().is_continue_as_new_suggested():
            attending = workflow.start_activity(
                ActivityName.ATTEND, task_queue=container_queue(self._state.agent_id), **options.ATTEND
            )
            await self._follow(attending)
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self._state)

    async def _follow(self, attending: workflow.ActivityHandle[None]) -> None:
        # Whoever was online has stopped attending just now: a new worker may fetch the activity within the grace.
        grace = self._state.grace if self._state.online else None
        while not attending.done():
            try:
                await workflow.wait_condition(lambda: attending.done() or self._unrecorded, timeout=grace)
            except TimeoutError:
                await self._record(online=False)
            if self._unrecorded:
                self._unrecorded = False
                await self._record(online=True)
            grace = None
        try:
            await attending
        except ActivityError as error:
            workflow.logger.info("agent %s stopped attending: %s", self._state.agent_id, error.cause)

    async def _record(self, *, online: bool) -> None:
        if self._state.facts is None:
            return
        self._state.online = online
        workflow.set_current_details("online" if online else "**lost**")
        finished: Finished = await workflow.execute_local_activity(
            ActivityName.RECORD_AGENT,
            RecordAgent(facts=self._state.facts, online=online),
            result_type=Finished,
            **options.RECORDS,
        )
        await wake(finished)

    @workflow.signal(name="hello", description="The agent is here, and says what it is")
    def hello(self, facts: AgentFacts) -> None:
        """From the agent's worker, each time it begins to attend."""
        self._state.facts = facts
        self._unrecorded = True
