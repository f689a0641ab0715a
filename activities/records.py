"""The control worker's records: placement, transitions, ends. Each runs as a local activity, one transaction each."""

from typing import Protocol

from towline.domain.records import Finish, Finished, Place, Placement, Record, RecordAgent


class Records(Protocol):
    """The records. Each method is one transaction and can be repeated without harm."""

    async def place(self, request: Place) -> Placement:
        """Choose agents and reserve."""
        ...

    async def record(self, request: Record) -> None:
        """Write transitions, facts and notes."""
        ...

    async def finish(self, request: Finish) -> Finished:
        """Write the end and free what was held. Exits of containers that come after the end are stored, too: a log's tail
        is kept, the status stays."""
        ...

    async def record_agent(self, request: RecordAgent) -> Finished:
        """Write the agent's presence; answers who waits for capacity."""
        ...
