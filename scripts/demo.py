"""`make demo`: one real session from a real registry, with a pull to watch; exit 0 only if all of it really happened."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import docker
from rich.console import Console

from scripts.programs import NEEDED, ensure, host_engine

ROOT: Final = Path(__file__).resolve().parents[1]
_READY_SECONDS: Final = 120.0
_BYTES_PER_SECOND: Final = 15_000_000
console: Final = Console(stderr=True, highlight=False)


class DemoFailedError(Exception):
    """Something that should have happened did not."""


def main() -> None:
    """Run the demo. `KEEP=1` leaves the stack up until Ctrl-C."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    ensure(NEEDED["demo"])
    try:
        with ExitStack() as stack:
            _demo(stack)
    except DemoFailedError as error:
        console.print(f"[red]The demo failed:[/red] {error}")
        sys.exit(1)
    console.print("[green]The demo is done; everything that it started is stopped.[/green]")


def _demo(stack: ExitStack) -> None:
    from tests.rig.faults import FaultRegistry, Throttle
    from tests.rig.images import demo_image, push
    from tests.rig.registry import RegistryProcess

    work = ROOT / ".towline"
    work.mkdir(exist_ok=True)
    engine = stack.enter_context(_engine(work))
    registry = stack.enter_context(RegistryProcess(work / "demo-registry"))
    console.print("building and pushing the demo image (150 MB in six layers; once) …")
    pushed = push(registry.host, "demo/hello", "1", demo_image())
    slow = stack.enter_context(FaultRegistry(registry.host))
    slow.on(Throttle(total_bytes_per_second=_BYTES_PER_SECOND), path="*/blobs/*")
    image = pushed.reference.replace(registry.host, slow.host)
    stack.enter_context(_without_image(engine, pushed.reference, image))
    addresses = stack.enter_context(_towline_up(work / "demo", engine))
    console.print(f"\n[bold]$ towline run {image}[/bold]\n")
    session_id, percents = _run(image, addresses)
    _check(session_id, percents, addresses)
    _say_where(session_id, addresses, engine, image)
    if os.environ.get("KEEP"):
        console.print("The stack stays up until Ctrl-C.")
        _wait_for_interrupt()


@contextmanager
def _engine(work: Path) -> Iterator[str]:
    """The engine of this machine, or one of our own for as long as the demo lasts."""
    found = host_engine()
    if found is not None:
        console.print(f"using the Docker Engine at {found}")
        yield found
        return
    ensure(NEEDED["engine"])
    if os.geteuid() != 0:
        raise DemoFailedError("no Docker Engine answers here, and starting one needs root: start Docker, or use sudo")
    from tests.rig.engines import classic_engine

    console.print("no Docker Engine answers here; starting one of our own")
    root = Path(tempfile.mkdtemp(prefix="engine-", dir=work))
    try:
        with classic_engine(root) as engine:
            yield engine.url
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _without_image(engine: str, *names: str) -> Iterator[None]:
    """Neither before nor after the demo is its image on the engine, so that it is really pulled each time."""
    client = docker.APIClient(base_url=engine, version="auto")

    def remove() -> None:
        for name in names:
            for tagged in client.images(name):
                client.remove_image(tagged["Id"], force=True)

    remove()
    yield
    remove()


@contextmanager
def _towline_up(data: Path, engine: str) -> Iterator[dict[str, str]]:
    """`towline up` on free ports, and its orderly stop."""
    from tests.rig.eventually import eventually_sync
    from tests.rig.ports import free_port

    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    ready = data / "ready.json"
    command = [str(ROOT / ".venv/bin/towline"), "up", f"--data-dir={data / 'd'}", f"--docker-host={engine}"]
    command += [f"--{name}-port={free_port()}" for name in ("api", "temporal", "temporal-ui")]
    console.print("starting the stack: PostgreSQL, Temporal, API, control worker, agent worker …")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_")}
    log = data / "up.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, f"--ready-file={ready}"], env=plain, stdout=output, stderr=subprocess.STDOUT
        )

    def addresses() -> dict[str, str]:
        if process.poll() is not None:
            raise DemoFailedError(f"the stack did not start:\n{log.read_text()}")
        assert ready.exists(), log.read_text()
        found: dict[str, str] = json.loads(ready.read_text())
        return found

    try:
        yield eventually_sync(addresses, timeout=_READY_SECONDS)
    finally:
        process.terminate()
        code = process.wait(90)
    if code != 0:
        raise DemoFailedError(f"the stack stopped with exit code {code}:\n{log.read_text()}")


def _run(image: str, addresses: dict[str, str]) -> tuple[str, list[float]]:
    """`towline run` before the user's eyes, and the same pull's percentages as the API tells them."""
    environment = _client_environment(addresses)
    command = [str(ROOT / ".venv/bin/towline"), "run", "--network=none", "--memory=64m", image]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    percents: list[float] = []
    session_ids: list[str] = []
    watcher = threading.Thread(target=_watch, args=(addresses, session_ids, percents), daemon=True)
    watcher.start()
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    code = process.wait()
    watcher.join(30)
    if code != 0:
        raise DemoFailedError(f"`towline run` ended with exit code {code}")
    if not any(line.startswith("Hello from") for line in lines):
        raise DemoFailedError("the container's own output did not arrive")
    if not session_ids:
        raise DemoFailedError("the session did not appear in the API")
    return session_ids[0], percents


def _client_environment(addresses: dict[str, str]) -> dict[str, str]:
    token = Path(addresses["token_file"]).read_text().strip()
    return dict(os.environ, TOWLINE_API_URL=addresses["api"], TOWLINE_TOKEN=token)


def _client(addresses: dict[str, str]) -> Any:
    from towline.cli.client import Client
    from towline.cli.connection import Connection

    token = Path(addresses["token_file"]).read_text().strip()
    return Client(Connection(api_url=addresses["api"], token=token))


def _watch(addresses: dict[str, str], session_ids: list[str], percents: list[float]) -> None:
    from tests.rig.eventually import eventually_sync

    client = _client(addresses)
    first = eventually_sync(lambda: client.ask("GET", "/v1/sessions")["sessions"][0], timeout=30)
    session_ids.append(first["id"])
    progress = (event.data["percent"] for event in client.events(first["id"]) if event.kind == "progress")
    percents.extend(percent for percent in progress if percent is not None)


def _check(session_id: str, percents: list[float], addresses: dict[str, str]) -> None:
    """All of it really happened."""
    session = _client(addresses).ask("GET", f"/v1/sessions/{session_id}")
    failed_tasks, children = asyncio.run(_in_temporal(session_id, addresses["temporal"]))
    checks = {
        "several different percentages were shown": len(set(percents)) >= 5,
        "none was over 100": bool(percents) and max(percents) <= 100,
        "none fell": percents == sorted(percents),
        "the session is TERMINATED with exit code 0": (session["status"], session["exit_code"]) == ("TERMINATED", 0),
        "its workflow has a child workflow": children == 1,
        "no workflow task failed": failed_tasks == 0,
    }
    console.print()
    for what, happened in checks.items():
        console.print(f"[{'green' if happened else 'red'}]{'✓' if happened else '✗'}[/] {what}")
    if not all(checks.values()):
        raise DemoFailedError(f"see above; the percentages were {percents}")


async def _in_temporal(session_id: str, address: str) -> tuple[int, int]:
    from temporalio.api.enums.v1 import EventType
    from temporalio.client import Client

    from towline.domain.queues import session_workflow_id

    client = await Client.connect(address)
    handle = client.get_workflow_handle(session_workflow_id(session_id))
    kinds = [event.event_type async for event in handle.fetch_history_events()]
    return (
        kinds.count(EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED),
        kinds.count(EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED),
    )


def _say_where(session_id: str, addresses: dict[str, str], engine: str, image: str) -> None:
    workflow = f"{addresses['temporal_ui']}/namespaces/default/workflows/session%2F{session_id}"
    lines = {
        "API": addresses["api"],
        "API docs": addresses["docs"],
        "token": addresses["token_file"],
        "Temporal UI": addresses["temporal_ui"],
        "the session": workflow,
        "pulling now": f"{addresses['temporal_ui']}/namespaces/default/workflows?query=TowlineStatus%3D%22PULLING%22",
    }
    console.rule("where to look")
    for name, place in lines.items():
        console.print(f"{name:<12} {place}", soft_wrap=True)
    if os.environ.get("KEEP"):
        _say_how(addresses, engine, image)
    else:
        console.print("To look around while it is up: make demo KEEP=1")


def _say_how(addresses: dict[str, str], engine: str, image: str) -> None:
    """What to paste into another terminal."""
    console.rule("to go on in another terminal, here")
    for line in (
        f"export TOWLINE_API_URL={addresses['api']}",
        f"export TOWLINE_TOKEN=$(cat {shlex.quote(addresses['token_file'])})",
        f"export DOCKER_HOST={engine}",
        "export PATH=$PWD/.venv/bin:$PATH",
        f"docker image rm --force {image}   # to see it pulled again",
        f"towline run --network none {image}",
        "towline session ls",
    ):
        console.print(line, soft_wrap=True, markup=False)


def _wait_for_interrupt() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("\nstopping …")


if __name__ == "__main__":
    main()
