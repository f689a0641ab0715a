"""The main job, as a person sees it: `towline run`, from request through a visible pull to output and exit code."""

import json
import re

import docker
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from tests.acceptance.stack import RunningStack
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.registry import RegistryProcess
from towline.domain.queues import kernel_start_workflow_id, session_workflow_id

pytestmark = pytest.mark.usefixtures("no_leftovers")
_FAILED_TASK = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED


async def histories(stack: RunningStack, session_id: str) -> list[list[EventType.ValueType]]:
    """The kinds of events of the session's workflow, and of its child."""
    client = await Client.connect(stack.temporal)
    ids = (session_workflow_id(session_id), kernel_start_workflow_id(session_id, 0))
    return [[event.event_type async for event in client.get_workflow_handle(id_).fetch_history_events()] for id_ in ids]


async def test_a_warm_run_prints_the_output_and_exits_with_the_commands_code(
    stack: RunningStack, small: PushedImage
) -> None:
    arguments = ("--network=none", "--memory=16m", small.reference, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    done = stack.cli("run", *arguments)
    assert done.returncode == 7, done.stderr
    assert sorted(done.stdout.split()) == ["err", "out"]
    [session_id] = re.findall(r"ses-\w+", done.stderr)[:1]
    parent, child = await histories(stack, session_id)
    assert _FAILED_TASK not in parent + child
    assert len(parent) + len(child) <= 45


def test_a_cold_run_shows_the_pull_honestly(
    stack: RunningStack, registry: RegistryProcess, docker_client: docker.DockerClient
) -> None:
    layers = (Layer.busybox(), *(Layer.random(mb=mb, seed=90 + mb) for mb in (12, 8, 4, 2, 1)))
    pushed = push(registry.host, "acceptance/cold", "1", ImageRecipe(layers=layers, cmd=("echo", "cold")))
    with FaultRegistry(registry.host) as slow:
        slow.on(Throttle(total_bytes_per_second=8_000_000), path="*/blobs/*")
        image = pushed.reference.replace(registry.host, slow.host)
        done = stack.cli("run", "--json", "--network=none", "--memory=16m", image)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    pulls = [event for event in events if event["event"] == "progress"]
    percents = [pull["percent"] for pull in pulls if pull["percent"] is not None]
    assert len(set(percents)) >= 4
    assert percents == sorted(percents)
    assert max(percents) <= 100
    assert {pull["bytes_total"] for pull in pulls} == {pushed.layer_bytes - pulls[0]["bytes_present"]}
    assert [e["to_status"] for e in events if e["event"] == "transition"] == [
        "SCHEDULED",
        "PREPARING",
        "PULLING",
        "PREPARED",
        "CREATING",
        "RUNNING",
        "TERMINATED",
    ]
    docker_client.images.remove(image)


def test_refused_input_exits_with_2_and_names_the_field(stack: RunningStack) -> None:
    done = stack.cli("run", "127.0.0.1:5000/App")
    assert done.returncode == 2
    assert "image:" in done.stderr


def test_a_failing_pull_is_not_green(stack: RunningStack, registry: RegistryProcess) -> None:
    done = stack.cli("run", f"{registry.host}/acceptance/small:nope")
    assert done.returncode == 1
    assert "image-not-found" in done.stderr


def test_a_command_that_cannot_be_executed_is_said_and_leaves_nothing(stack: RunningStack, small: PushedImage) -> None:
    done = stack.cli("run", "--network=none", "--memory=16m", small.reference, "--", "nosuch")
    assert done.returncode == 1
    assert "command-not-found" in done.stderr


def test_without_a_server_it_says_how_to_start_one(stack: RunningStack) -> None:
    import subprocess
    import sys

    environment = stack.environment() | {"TOWLINE_API_URL": "http://127.0.0.1:1"}
    command = [sys.executable, "-m", "towline.cli.main", "run", "busybox"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "towline up" in done.stderr


def test_a_megabyte_of_output_arrives_whole(stack: RunningStack, small: PushedImage) -> None:
    command = "i=0; while [ $i -lt 20000 ]; do echo line-$i-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; i=$((i+1)); done"
    done = stack.cli("run", "--network=none", "--memory=32m", small.reference, "--", "sh", "-c", command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 20000
    assert lines[-1].startswith("line-19999-")
