"""An agent's presence as one durable workflow: who serves it, whether it lives, and what its sessions have to be told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from towline.domain.agents import (
    AgentFacts,
    AgentRecorded,
    AgentStatus,
    Attend,
    Claim,
    Drain,
    EngineDown,
    Leave,
    RecordAgent,
    Stay,
)
from towline.domain.lifecycle import Reason
from towline.domain.queues import CLAIM, ActivityName, AgentSignal, Signal, WorkflowName, container_queue
from workflows import options
from workflows.chronicle import tell, wake


@dataclass(kw_only=True)
class AgentState:
    """The workflow's whole state. `claim`: who serves the agent. `facts` None: it has not said hello yet. `away_at`: when, if
    nothing is heard, it counts as away; `told`: its sessions know that it does."""

    agent_id: str
    claim: Claim | None = None
    facts: AgentFacts | None = None
    status: AgentStatus = AgentStatus.LOST
    message: str = ""
    away_at: datetime | None = None
    told: bool = False
    orders: list[Drain | None] = field(default_factory=list)
    """What superadmins asked for and is not done yet: to drain the agent, or (None) to use it again."""


@workflow.defn(name=WorkflowName.AGENT)
class Agent:
    """Owns whether an agent is online."""

    @workflow.init
    def __init__(self, state: AgentState) -> None:
        self._state = state
        self._attended = False
        self._said: AgentFacts | EngineDown | None = None

    @workflow.run
    async def run(self, state: AgentState) -> None:
        """Runs for as long as there is an agent with this id."""
        await workflow.wait_condition(lambda: self._state.claim is not None)
        while not workflow.info().is_continue_as_new_suggested():
            await self._be_attended(self._served_by())
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self._state)

    async def _be_attended(self, claim: Claim) -> None:
        """One long activity on the agent: its heartbeats are the sign of life. Returns when they end, another worker has the
        claim, or the history is long enough."""
        attending = workflow.start_activity(
            ActivityName.ATTEND,
            Attend(boot_id=claim.boot_id),
            task_queue=container_queue(self._state.agent_id),
            **options.ATTEND,
        )
        full = workflow.info().is_continue_as_new_suggested
        while not attending.done() and self._served_by() is claim and not full():
            await self._until(lambda: attending.done() or self._served_by() is not claim or self._has_news())
            await self._follow()
        attending.cancel()
        try:
            await attending
        except ActivityError as error:
            workflow.logger.info("agent %s: %s attends no more: %s", self._state.agent_id, claim.where, error.cause)
        self._attended = False
        self._go_away()

    def _has_news(self) -> bool:
        return self._said is not None or bool(self._state.orders)

    async def _until(self, happened: Callable[[], bool]) -> None:
        left = None if self._state.away_at is None else max(self._state.away_at - workflow.now(), timedelta())
        try:
            await workflow.wait_condition(happened, timeout=left)
        except TimeoutError:
            return

    async def _follow(self) -> None:
        said, self._said = self._said, None
        if isinstance(said, AgentFacts):
            await self._come_back(said)
        elif said is not None:
            self._go_away()
            await self._record(AgentStatus.ENGINE_DOWN, said.message)
        if self._state.away_at is not None and workflow.now() >= self._state.away_at:
            await self._be_away()
        while self._state.orders:
            await self._obey(self._state.orders[0])
            del self._state.orders[0]

    async def _obey(self, order: Drain | None) -> None:
        # The records know of it already: this finds out who is to be told, and wakes who waits for the agent.
        recorded = await self._record(self._state.status, self._state.message)
        agent_id = self._state.agent_id
        if order is None:
            await tell(recorded.sessions, Signal.AGENT_STAY, Stay(agent_id=agent_id, reason=Reason.AGENT_DRAINED))
            return
        leave = Leave(
            agent_id=agent_id,
            reason=Reason.AGENT_DRAINED,
            message=f"agent {agent_id} is drained by {order.actor.name}" + (f": {order.why}" if order.why else ""),
            deadline=order.deadline,
            actor=order.actor,
            why=order.why,
        )
        await tell(recorded.sessions, Signal.AGENT_LEAVE, leave)

    async def _come_back(self, facts: AgentFacts) -> None:
        self._state.facts = facts
        self._state.away_at = None
        recorded = await self._record(AgentStatus.ONLINE, "")
        if self._state.told:
            self._state.told = False
            stay = Stay(agent_id=self._state.agent_id, reason=Reason.AGENT_LOST)
            await tell(recorded.sessions, Signal.AGENT_STAY, stay)

    def _go_away(self) -> None:
        """Silence, or an engine that does not answer: within the grace it may be over."""
        facts = self._state.facts
        if facts is not None and self._state.away_at is None and self._state.status is not AgentStatus.LOST:
            self._state.away_at = workflow.now() + timedelta(seconds=facts.grace_seconds)

    async def _be_away(self) -> None:
        self._state.away_at = None
        if self._attended:
            recorded = await self._record(AgentStatus.ENGINE_DOWN, self._state.message)
        else:
            recorded = await self._record(AgentStatus.LOST, "nothing is heard of its worker")
        if not self._state.told:
            self._state.told = True
            await tell(recorded.sessions, Signal.AGENT_LEAVE, self._lost())

    def _lost(self) -> Leave:
        running_grace = self._state.facts.running_grace_seconds if self._state.facts else 0.0
        return Leave(
            agent_id=self._state.agent_id,
            reason=Reason.AGENT_LOST,
            message=f"agent {self._state.agent_id} is {self._state.status}: {self._state.message}",
            deadline=workflow.now() + timedelta(seconds=running_grace),
        )

    async def _record(self, status: AgentStatus, message: str) -> AgentRecorded:
        self._state.status, self._state.message = status, message
        workflow.set_current_details(f"**{status}** {message}".rstrip())
        if self._state.facts is None:
            return AgentRecorded()
        recorded: AgentRecorded = await workflow.execute_local_activity(
            ActivityName.RECORD_AGENT,
            RecordAgent(facts=self._state.facts, status=status, message=message),
            result_type=AgentRecorded,
            **options.RECORDS,
        )
        await wake(recorded.woken)
        return recorded

    def _served_by(self) -> Claim:
        if self._state.claim is None:
            raise RuntimeError("an agent is attended only after a claim")
        return self._state.claim

    @workflow.update(name=CLAIM, description="A worker wants to serve the agent")
    async def take_claim(self, claim: Claim) -> None:
        """Accepted, or refused with the type `conflict` because another worker serves the agent and lives. To know that can
        take as long as a heartbeat's time-out."""
        held = self._state.claim
        is_rival = held is not None and held.boot_id != claim.boot_id and not (held.host and held.host == claim.host)
        if is_rival:
            try:
                await workflow.wait_condition(lambda: not self._attended, timeout=options.CLAIM_PATIENCE)
            except TimeoutError:
                message = f"agent {self._state.agent_id} is served by {self._served_by().where}, which is alive"
                raise ApplicationError(message, type="conflict", non_retryable=True) from None
        self._state.claim = claim

    @workflow.signal(name=AgentSignal.HELLO, description="The agent is here, and says what it is")
    def hello(self, facts: AgentFacts) -> None:
        """From the agent's worker, each time it begins to attend, and when what it says has changed."""
        self._hear(facts)

    @workflow.signal(name=AgentSignal.ENGINE_DOWN, description="The agent cannot use its engine")
    def engine_down(self, down: EngineDown) -> None:
        """From the agent's worker, until the next hello."""
        self._hear(down)

    @workflow.signal(name=AgentSignal.DRAIN, description="Nobody shall be on the agent any more")
    def drain(self, order: Drain) -> None:
        """A superadmin has cordoned the agent, and wants its sessions off it."""
        self._state.orders.append(order)

    @workflow.signal(name=AgentSignal.UNCORDON, description="The agent takes new work again")
    def uncordon(self) -> None:
        """A superadmin has put the agent into use again; a drain is called off."""
        self._state.orders.append(None)

    def _hear(self, said: AgentFacts | EngineDown) -> None:
        # Another worker may have the claim by now: what a former one says counts no more.
        if self._state.claim is not None and self._state.claim.boot_id == said.boot_id:
            self._attended = True
            self._said = said
