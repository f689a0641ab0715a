"""The real stack: PostgreSQL, Temporal, the API, the control worker and the agents, and what each has to know."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from towline.domain.queues import CONTROL_QUEUE, container_queue
from towline.embedded.children import Command
from towline.embedded.parts import Part, Stage, Step
from towline.embedded.places import api_url_path, token_path, write_private
from towline.embedded.pollers import Polled, Pollers
from towline.embedded.ports import LOOPBACK, PortClaim
from towline.embedded.postgres import Postgres
from towline.embedded.temporal import NAMESPACE, Temporal

_EVERYWHERE: Final = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 (looked up, not bound)


@dataclass(frozen=True, kw_only=True)
class AgentPlan:
    """An agent of the stack, and its engine (None: the one of the settings or the environment)."""

    id: str
    docker_host: str | None = None


def plan_agents(count: int, docker_hosts: Sequence[str]) -> tuple[AgentPlan, ...]:
    """`local`, or `local-1` to `local-N`: at least one for each engine, dealt out to the engines in turn."""
    count = max(count, len(docker_hosts))
    hosts = docker_hosts or (None,)
    if count == 1:
        return (AgentPlan(id="local", docker_host=hosts[0]),)
    return tuple(AgentPlan(id=f"local-{n + 1}", docker_host=hosts[n % len(hosts)]) for n in range(count))


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A whole stack with its data in `directory`, an absolute path that this process holds. `keys` seal secrets.

    `new_token`: the first superadmin's token is lost, make another.
    """

    directory: Path
    agents: tuple[AgentPlan, ...]
    keys: tuple[str, ...]
    api_host: str = LOOPBACK
    api_port: int = 8470
    temporal_port: int = 7233
    temporal_ui_port: int = 8233
    new_token: bool = False

    @cached_property
    def postgres(self) -> Postgres:
        """The database server."""
        return Postgres(directory=self.directory)

    @cached_property
    def temporal(self) -> Temporal:
        """Temporal's dev server."""
        return Temporal(directory=self.directory, port=self.temporal_port, ui_port=self.temporal_ui_port)

    @property
    def api_url(self) -> str:
        """Where clients on this machine find the API."""
        host = _EVERYWHERE.get(self.api_host, self.api_host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.api_port}"

    @property
    def claims(self) -> tuple[PortClaim, ...]:
        """The ports that must be free."""
        return (
            PortClaim(port=self.api_port, part="the API", option="--api-port", host=self.api_host),
            PortClaim(port=self.temporal_port, part="Temporal", option="--temporal-port"),
            PortClaim(port=self.temporal_ui_port, part="Temporal UI", option="--temporal-ui-port"),
        )

    def stages(self) -> tuple[Stage, ...]:
        """The order of the start; the stop goes the other way."""
        postgres, temporal = self.postgres, self.temporal
        pollers = Pollers(temporal.address, NAMESPACE)
        return (
            (
                Part(name="postgres", prepare=postgres.prepare, is_ready=partial(asyncio.to_thread, postgres.is_ready)),
                Part(name="temporal", prepare=temporal.prepare, is_ready=partial(asyncio.to_thread, temporal.is_ready)),
            ),
            (Step(name="migrations", run=self._migrate), Step(name="namespace", run=temporal.configure)),
            # Together: what they spend before they are ready is the import of libraries, on a core each.
            (
                self._api(),
                self._worker("control", ("control",), self._records, Polled(pollers, CONTROL_QUEUE)),
                *(self._agent(plan, pollers) for plan in self.agents),
            ),
        )

    def _api(self) -> Part:
        program = (sys.executable, "-P", "-m", "uvicorn", *uvicorn_arguments(self.api_host, self.api_port))
        environment = {**self._records, "TOWLINE_API__HOST": self.api_host, "TOWLINE_API__PORT": str(self.api_port)}
        command = Command(name="api", argv=program, cwd=Path.cwd(), environment=environment)
        return Part(name="api", prepare=lambda: command, is_ready=partial(_answers, f"{self.api_url}/readyz"))

    def _agent(self, plan: AgentPlan, pollers: Pollers) -> Part:
        # An agent gets no database: it needs Temporal and its engine.
        environment = {**self._common, "TOWLINE_AGENT__ID": plan.id}
        if plan.docker_host:
            environment["TOWLINE_AGENT__DOCKER_HOST"] = plan.docker_host
        polled = Polled(pollers, container_queue(plan.id))
        return self._worker(f"agent-{plan.id}", ("agent", "--id", plan.id), environment, polled)

    def _worker(self, name: str, arguments: tuple[str, ...], environment: Mapping[str, str], polled: Polled) -> Part:
        argv = (sys.executable, "-P", "-m", "workers", *arguments)
        command = Command(name=name, argv=argv, cwd=Path.cwd(), environment=environment)

        def prepare() -> Command:
            polled.starts()
            return command

        return Part(name=name, prepare=prepare, is_ready=polled.is_ready)

    @cached_property
    def _common(self) -> Mapping[str, str]:
        return {
            "PYTHONUNBUFFERED": "1",
            "TOWLINE_DATA_DIR": str(self.directory),
            "TOWLINE_TEMPORAL__ADDRESS": self.temporal.address,
            "TOWLINE_TEMPORAL__NAMESPACE": NAMESPACE,
            "TOWLINE_SECRETS__KEYS": json.dumps(self.keys),
        }

    @cached_property
    def _records(self) -> Mapping[str, str]:
        return {**self._common, "TOWLINE_DATABASE__URL": self.postgres.url()}

    async def _migrate(self) -> None:
        await asyncio.to_thread(self._migrate_in_thread)

    def _migrate_in_thread(self) -> None:
        from towline.store.bootstrap import ensure_first_token
        from towline.store.migrate import upgrade

        upgrade(self.postgres.url())
        if token := ensure_first_token(self.postgres.url(), another=self.new_token):
            write_private(token_path(self.directory), token)
        api_url_path(self.directory).write_text(f"{self.api_url}\n", encoding="utf-8")


def uvicorn_arguments(host: str, port: int) -> tuple[str, ...]:
    """How the API is served. Event streams stay open as long as their readers like: a stop does not wait for them."""
    where = ("--factory", "api.app:create_app", "--host", host, "--port", str(port))
    return (*where, "--no-access-log", "--timeout-graceful-shutdown", "5")


async def _answers(url: str) -> bool:
    import httpx

    async with httpx.AsyncClient(timeout=3) as client:
        try:
            return (await client.get(url)).is_success
        except httpx.TransportError:
            return False
