"""Three agents on three engines: lost, back, with an engine that is down, drained; and a workflow that somebody ends by hand."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.acceptance.stack import AgentProcess, RunningStack, running_stack
from tests.rig.engines import Engine, EngineOptions, classic_engine
from tests.rig.eventually import eventually_sync
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.registry import RegistryProcess

SETTINGS = {
    "TOWLINE_AGENT__GRACE_SECONDS": "1",
    "TOWLINE_AGENT__RUNNING_GRACE_SECONDS": "20",
    "TOWLINE_AGENT__LOOK_EVERY_SECONDS": "2",
}
CPU = {"local": "1", "a2": "2", "a3": "3"}


class Fleet:
    """The stack with `local` on one engine, and `a2` and `a3` as processes of their own on two others."""

    def __init__(self, stack: RunningStack, engines: dict[str, Engine], agents: dict[str, AgentProcess]) -> None:
        self.stack = stack
        self.engines = engines
        self.agents = agents

    def agent(self, agent_id: str) -> dict[str, Any]:
        view: dict[str, Any] = self.stack.api.get(f"/v1/agents/{agent_id}").json()
        return view

    def becomes(self, agent_id: str, status: str, *, timeout: float = 60) -> None:
        def seen() -> None:
            assert self.agent(agent_id).get("status") == status, self.agent(agent_id)

        eventually_sync(seen, timeout=timeout, interval=0.2)

    def containers(self, agent_id: str) -> list[str]:
        """The sessions of the containers on the agent's engine."""
        with contextlib.closing(self.engines[agent_id].client()) as client:
            return [str(one["Labels"]["io.towline.session"]) for one in client.api.containers(all=True)]

    def events(self, session: dict[str, Any]) -> list[tuple[str, str]]:
        """Reason or kind, and the message, of each event that says something."""
        answer = self.stack.api.get(f"/v1/sessions/{session['id']}/events").json()["events"]
        return [(event["reason"] or event["kind"], event["message"]) for event in answer if event["message"]]

    def is_clean(self) -> None:
        for agent_id in self.engines:
            agent = self.agent(agent_id)
            assert self.containers(agent_id) == []
            assert (agent["cpu_free"], agent["memory_bytes_free"]) == (agent["cpu"], agent["memory_bytes"]), agent
        self.stack.has_no_drift()


@pytest.fixture(scope="module")
def fleet(
    classic_engine: Engine, containerd_engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    with ExitStack() as resources:
        mortal = resources.enter_context(_own_engine(tmp_path_factory.mktemp("mortal")))
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="tl-fleet-")))
        directory.chmod(0o755)
        settings = SETTINGS | {"TOWLINE_AGENT__CPU": CPU["local"]}
        stack = resources.enter_context(running_stack(directory, classic_engine.url, settings=settings))
        engines = {"local": classic_engine, "a2": containerd_engine, "a3": mortal}
        agents = {
            one: AgentProcess(stack, one, engines[one].url, SETTINGS | {"TOWLINE_AGENT__CPU": CPU[one]})
            for one in ("a2", "a3")
        }
        fleet = Fleet(stack, engines, agents)
        for agent in agents.values():
            resources.callback(agent.stop)
            agent.start()
        for agent_id in engines:
            fleet.becomes(agent_id, "ONLINE")
        yield fleet


def _own_engine(root: Path) -> Engine:
    """One that a test may kill."""
    return classic_engine(root, EngineOptions(live_restore=True))


@pytest.fixture(autouse=True)
def _clean(fleet: Fleet) -> Iterator[None]:
    yield
    try:
        eventually_sync(fleet.is_clean, timeout=45, interval=0.5)
    except AssertionError:
        fleet.stack.end_all()
        raise


@pytest.fixture(scope="module", name="image")
def _image(fleet: Fleet, registry: RegistryProcess) -> PushedImage:
    pushed = push(registry.host, "acceptance/fleet", "1", ImageRecipe(layers=(Layer.busybox(),), cmd=("sleep", "600")))
    for engine in fleet.engines.values():
        engine.client().images.pull(pushed.reference)
    return pushed


def test_agents_say_what_they_are(fleet: Fleet) -> None:
    shown = {agent["id"]: agent for agent in fleet.stack.api.get("/v1/agents").json()["agents"]}
    assert {one: agent["cpu"] for one, agent in shown.items()} == {one: float(cpu) for one, cpu in CPU.items()}
    assert len({agent["boot_id"] for agent in shown.values()}) == len(shown)
    for agent in shown.values():
        assert (agent["resource_group"], agent["gpu"]) == ("default", 0)
        assert agent["memory_bytes"] > 1 << 28
        assert agent["platform"].startswith("linux/")


def test_a_second_worker_of_an_id_is_refused(fleet: Fleet) -> None:
    boot_id = fleet.agent("a2")["boot_id"]
    second = fleet.agents["a2"].start_another()
    assert second.returncode == 1
    assert "another worker on this host serves agent a2" in second.stderr
    assert (fleet.agent("a2")["status"], fleet.agent("a2")["boot_id"]) == ("ONLINE", boot_id)


def test_an_agent_whose_engine_is_down_gets_no_work_until_it_is_up(fleet: Fleet, image: PushedImage) -> None:
    fleet.engines["a3"].kill()
    fleet.becomes("a3", "ENGINE_DOWN")
    assert "cannot be reached" in fleet.agent("a3")["message"]
    waiting = fleet.stack.create(image.reference, "true", agent="a3")
    other = fleet.stack.create(image.reference, "true", resources={"cpu": 1.5, "memory": "16m"})
    assert fleet.stack.ended(other)["kernels"][0]["agent_id"] == "a2"
    assert fleet.stack.show(waiting)["status"] == "PENDING"
    fleet.engines["a3"].start()
    fleet.becomes("a3", "ONLINE")
    ended = fleet.stack.ended(waiting)
    assert (ended["status"], ended["kernels"][0]["agent_id"]) == ("TERMINATED", "a3")


def test_what_does_not_run_yet_is_placed_anew_when_its_agent_is_lost(fleet: Fleet, registry: RegistryProcess) -> None:
    layers = (Layer.busybox(), Layer.random(mb=9, seed=77))
    pushed = push(registry.host, "acceptance/lost", "1", ImageRecipe(layers=layers, cmd=("sleep", "600")))
    with FaultRegistry(registry.host) as slow:
        slow.on(Throttle(total_bytes_per_second=300_000), path="*/blobs/*")
        # `local` lends a single core.
        session = fleet.stack.create(
            pushed.reference.replace(registry.host, slow.host), resources={"cpu": 1.5, "memory": "16m"}
        )
        first = fleet.stack.reaches(session, "PULLING")["kernels"][0]["agent_id"]
        fleet.agents[first].kill()
        fleet.becomes(first, "LOST")
        moved = fleet.stack.reaches(session, "PULLING", "PREPARING")

        def is_elsewhere() -> None:
            assert fleet.stack.show(session)["kernels"][0]["agent_id"] not in (None, first)

        eventually_sync(is_elsewhere, timeout=30)
        slow.clear()
        view = fleet.stack.reaches(session, "RUNNING", timeout_seconds=120)
    assert view["kernels"][0]["agent_id"] != first, moved
    assert any(reason == "agent-lost" and first in message for reason, message in fleet.events(session))
    fleet.agents[first].start()
    fleet.becomes(first, "ONLINE")
    fleet.stack.cancel(session)
    assert fleet.stack.ended(session)["status"] == "TERMINATED"


def test_what_runs_goes_on_when_its_agent_is_back_in_time(fleet: Fleet, image: PushedImage) -> None:
    session = fleet.stack.create(image.reference, agent="a2")
    before = fleet.stack.reaches(session, "RUNNING")["kernels"][0]["container_id"]
    fleet.agents["a2"].kill()
    fleet.becomes("a2", "LOST")
    fleet.agents["a2"].start()
    fleet.becomes("a2", "ONLINE")

    def says_so() -> None:
        assert [kind for kind, _ in fleet.events(session)][-2:] == ["agent-lost", "agent-back"]

    eventually_sync(says_so, timeout=10)
    view = fleet.stack.show(session)
    assert (view["status"], view["kernels"][0]["container_id"]) == ("RUNNING", before)
    fleet.stack.cancel(session)
    assert fleet.stack.ended(session)["status"] == "TERMINATED"


def test_what_runs_ends_when_its_agent_stays_away_and_its_container_goes_when_it_is_back(
    fleet: Fleet, image: PushedImage
) -> None:
    session = fleet.stack.create(image.reference, agent="a2")
    fleet.stack.reaches(session, "RUNNING")
    fleet.agents["a2"].kill()
    view = fleet.stack.ended(session)
    assert (view["status"], view["reason"]) == ("ERROR", "agent-lost")
    assert fleet.agent("a2")["cpu_free"] == fleet.agent("a2")["cpu"]
    assert fleet.containers("a2") == [session["id"]]
    fleet.agents["a2"].start()
    eventually_sync(lambda: fleet.containers("a2") == [], timeout=30)
    fleet.becomes("a2", "ONLINE")


def test_what_has_vanished_while_its_agent_was_away_is_noticed(fleet: Fleet, image: PushedImage) -> None:
    session = fleet.stack.create(image.reference, agent="a3")
    container = fleet.stack.reaches(session, "RUNNING")["kernels"][0]["container_id"]
    fleet.agents["a3"].kill()
    with contextlib.closing(fleet.engines["a3"].client()) as client:
        client.containers.get(container).remove(force=True)
    # The engine tells again what happened in its last seconds; this shall be older.
    fleet.becomes("a3", "LOST")
    fleet.agents["a3"].start()
    view = fleet.stack.ended(session)
    assert (view["status"], view["reason"]) == ("ERROR", "container-lost")
    fleet.becomes("a3", "ONLINE")


def test_a_session_whose_workflow_is_terminated_by_hand_ends_and_holds_nothing(
    fleet: Fleet, image: PushedImage
) -> None:
    session = fleet.stack.create(image.reference, agent="a2")
    stays = fleet.stack.create(image.reference, agent="a2")
    for one in (session, stays):
        fleet.stack.reaches(one, "RUNNING")

    async def terminate() -> None:
        client = await Client.connect(fleet.stack.temporal)
        await client.get_workflow_handle(f"session/{session['id']}").terminate("by hand")

    asyncio.run(terminate())
    view = fleet.stack.ended(session)
    assert (view["status"], view["reason"]) == ("ERROR", "workflow-lost")
    assert "was terminated in Temporal" in view["message"]
    eventually_sync(lambda: fleet.containers("a2") == [stays["id"]], timeout=30)
    assert fleet.stack.show(stays)["status"] == "RUNNING"
    fleet.stack.cancel(stays)
    fleet.stack.ended(stays)


def test_a_drained_agent_is_left_by_the_deadline_and_used_again_after(fleet: Fleet, image: PushedImage) -> None:
    session = fleet.stack.create(image.reference, agent="a3")
    fleet.stack.reaches(session, "RUNNING")
    drained = fleet.stack.cli("agent", "drain", "a3", "--deadline=3s", "--why=new disks")
    assert drained.returncode == 0, drained.stderr
    waiting = fleet.stack.create(image.reference, "true", agent="a3")
    view = fleet.stack.ended(session)
    assert (view["status"], view["reason"], view["ended_by"]) == ("TERMINATED", "agent-drained", "admin")
    assert (view["ended_why"], fleet.stack.show(waiting)["status"]) == ("new disks", "PENDING")
    assert "a3\tONLINE draining" in fleet.stack.cli("agent", "ls").stdout
    assert fleet.stack.cli("agent", "uncordon", "a3").returncode == 0
    assert fleet.stack.ended(waiting)["status"] == "TERMINATED"
    shown = fleet.stack.cli("agent", "show", "a3").stdout
    assert "draining by admin new disks" in shown
    assert "uncordoned by admin" in shown
