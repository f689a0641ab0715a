"""The control worker's records: placement, transitions, ends. Each runs as a local activity, one transaction each."""

from typing import Protocol

from temporalio import activity

from towline.domain.agents import AgentRecorded, RecordAgent
from towline.domain.queues import ActivityName
from towline.domain.records import Admission, Admit, Finish, Freed, Place, Placement, Record


class Records(Protocol):
    """The records. Each method is one transaction and can be repeated without harm."""

    async def place(self, request: Place) -> Placement:
        """Choose agents and reserve."""
        ...

    async def admit(self, request: Admit) -> Admission:
        """Let a session on to CREATING, or have it wait for its owner's quotas."""
        ...

    async def record(self, request: Record) -> Freed:
        """Write transitions, facts and notes; what kernels that are to be placed anew held is free."""
        ...

    async def finish(self, request: Finish) -> Freed:
        """Write the end and free what was held. Exits of containers that come after the end are stored, too: a log's tail
        is kept, the status stays."""
        ...

    async def record_agent(self, request: RecordAgent) -> AgentRecorded:
        """Write the agent's presence; answers who waits for capacity, and who is on the agent."""
        ...


class RecordActivities:
    """The records as activities. An error (Postgres is away) is retried for as long as it takes: a decision once made is
    never lost for want of a place to write it down."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @activity.defn(name=ActivityName.PLACE)
    async def place(self, request: Place) -> Placement:
        """Choose agents and reserve."""
        return await self._records.place(request)

    @activity.defn(name=ActivityName.ADMIT)
    async def admit(self, request: Admit) -> Admission:
        """Let a session on to CREATING, or have it wait for its owner's quotas."""
        return await self._records.admit(request)

    @activity.defn(name=ActivityName.RECORD)
    async def record(self, request: Record) -> Freed:
        """Write transitions, facts and notes."""
        return await self._records.record(request)

    @activity.defn(name=ActivityName.FINISH)
    async def finish(self, request: Finish) -> Freed:
        """Write the end and free what was held."""
        return await self._records.finish(request)

    @activity.defn(name=ActivityName.RECORD_AGENT)
    async def record_agent(self, request: RecordAgent) -> AgentRecorded:
        """Write the agent's presence."""
        return await self._records.record_agent(request)
