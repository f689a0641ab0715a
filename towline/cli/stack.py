"""Commands that run servers: the whole stack, or one of its parts."""

import asyncio
import contextlib
import json
import runpy
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from towline.errors import InvalidInputError

if TYPE_CHECKING:
    from towline.embedded.stack import Stack

app = typer.Typer()
worker = typer.Typer(help="Run a worker, for a fleet.", no_args_is_help=True)
app.add_typer(worker, name="worker")


@app.command()
def up(
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept.", show_default=False)] = None,
    agents: Annotated[int, typer.Option(min=1, max=100, help="How many agents.")] = 1,
    docker_host: Annotated[
        list[str] | None, typer.Option(help="An engine, as in DOCKER_HOST. Repeat it for more.", show_default=False)
    ] = None,
    api_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default 8470.", show_default=False)] = None,
    temporal_port: Annotated[int, typer.Option(min=1, max=65535)] = 7233,
    temporal_ui_port: Annotated[int, typer.Option(min=1, max=65535)] = 8233,
    ready_file: Annotated[
        Path | None, typer.Option(help="Written, with the addresses as JSON, once all is up.", show_default=False)
    ] = None,
    new_token: Annotated[bool, typer.Option("--new-token", help="The first token is lost: make another.")] = False,
) -> None:
    """Run the whole stack in the foreground until Ctrl-C. The next `up` resumes every session."""
    from towline.cli.checks import engine_url
    from towline.embedded.directory import held
    from towline.embedded.places import sealing_key, stack_path
    from towline.embedded.stack import Stack, plan_agents
    from towline.settings import load_settings

    settings = load_settings()
    with held(data_dir or settings.data_dir) as directory:
        keys = tuple(key.get_secret_value() for key in settings.secrets.keys)
        stack = Stack(
            directory=directory,
            agents=plan_agents(agents, docker_host or ()),
            keys=keys or (sealing_key(directory),),
            api_host=settings.api.host,
            api_port=api_port or settings.api.port,
            temporal_port=temporal_port,
            temporal_ui_port=temporal_ui_port,
            new_token=new_token,
        )
        engines = sorted({plan.docker_host or engine_url(settings) for plan in stack.agents})
        with _present_while_up(stack_path(directory), *([ready_file] if ready_file else [])) as announced:
            asyncio.run(_run(stack, engines, announced))


@app.command()
def api() -> None:
    """Run the HTTP API."""
    from towline.embedded.stack import uvicorn_arguments
    from towline.settings import load_settings

    settings = load_settings().api
    _become("uvicorn", *uvicorn_arguments(settings.host, settings.port))


@app.command()
def migrate(
    temporal: Annotated[bool, typer.Option("--temporal", help="Also prepare the namespace in Temporal.")] = False,
    first_token: Annotated[
        bool, typer.Option("--first-token", help="Also make the first superadmin; the token is printed, once.")
    ] = False,
) -> None:
    """Bring the database to this version's schema. Safe to repeat."""
    from towline.embedded.temporal import register
    from towline.settings import load_settings
    from towline.store.bootstrap import ensure_first_token
    from towline.store.migrate import upgrade

    settings = load_settings()
    upgrade(settings.database.url)
    if temporal:
        asyncio.run(register(settings.temporal.address, settings.temporal.namespace))
    if first_token and (token := ensure_first_token(settings.database.url)):
        print(token)


@worker.command()
def control() -> None:
    """Run workflows and keep the records."""
    _become("workers", "control")


@worker.command()
def agent(
    agent_id: Annotated[str, typer.Option("--id", help="The agent's name in the fleet.")],
) -> None:
    """Serve the Docker engine of this host."""
    _become("workers", "agent", "--id", agent_id)


def _become(module: str, *arguments: str) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


@contextlib.contextmanager
def _present_while_up(*files: Path) -> Iterator[tuple[Path, ...]]:
    """The files are absent before and after; those of a killed stack would mislead."""
    try:
        for file in files:
            file.unlink(missing_ok=True)
            if not file.parent.is_dir():
                raise InvalidInputError(f"there is no directory {file.parent} for {file.name}")
        yield files
    finally:
        for file in files:
            file.unlink(missing_ok=True)


async def _run(stack: "Stack", engines: Sequence[str], announced: Sequence[Path]) -> None:
    from towline.embedded.parts import Step
    from towline.embedded.ports import refuse_taken
    from towline.embedded.supervisor import Supervisor

    look = Step(name="engines", run=lambda: asyncio.to_thread(_look_at_engines, engines))
    supervisor = Supervisor((*stack.stages(), (look,)), directory=stack.directory, say=_say)
    supervisor.end_leftovers()
    refuse_taken(stack.claims)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    await supervisor.run(stop, lambda: _announce(stack, engines, announced))


def _look_at_engines(engines: Sequence[str]) -> None:
    """Say what is wrong with them. No reason not to start: the agents wait for their engines."""
    from towline.cli.checks import engine_checks

    for check in (check for engine in engines for check in engine_checks(engine) if not check.ok):
        _say(f"✗ {check.name}: {check.detail}\n    {check.advice}")


def _announce(stack: "Stack", engines: Sequence[str], files: Sequence[Path]) -> None:
    from towline.embedded.places import default_data_directory, token_path

    addresses = {
        "api": stack.api_url,
        "docs": f"{stack.api_url}/docs",
        "temporal": stack.temporal.address,
        "temporal_ui": stack.temporal.ui_url,
        "token_file": str(token_path(stack.directory)),
        "logs": str(stack.directory / "logs"),
    }
    for name, address in addresses.items():
        _say(f"  {name.replace('_', ' '):<12} {address}")
    if stack.directory != default_data_directory():
        _say(f"Clients on this machine need: export TOWLINE_DATA_DIR={stack.directory}")
    if not token_path(stack.directory).exists():
        _say("The first token's file is gone; `towline up --new-token` makes another.")
    for file in files:
        new = file.with_name(f"{file.name}.new")
        new.write_text(json.dumps({**addresses, "engines": list(engines)}), encoding="utf-8")
        new.replace(file)
    _say("READY")


def _say(line: str) -> None:
    # The terminal may be gone; the stack has to be stopped all the same.
    with contextlib.suppress(OSError):
        print(line, flush=True)
