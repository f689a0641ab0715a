"""Containers on an agent: start, end, read logs."""

from typing import Protocol

from towline.domain.containers import ContainerExit, EndContainer, LogPage, ReadLogs, StartContainer, StartedContainer


class Containers(Protocol):
    """An agent's containers. Raises `towline.errors.ContainerError` with a typed reason; each method can be repeated."""

    async def start(self, request: StartContainer) -> StartedContainer:
        """Find or create, then start. A permanent failure has removed what it made before it is raised."""
        ...

    async def end(self, request: EndContainer) -> ContainerExit:
        """Stop, keep the tail, remove. A container that is not there is a success with `exit_code` None."""
        ...

    async def read_logs(self, request: ReadLogs) -> LogPage:
        """A page of the live log."""
        ...
