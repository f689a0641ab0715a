"""`python -m workers control` and `python -m workers agent [--id ID]`: the composition roots of the worker processes."""

import asyncio
import logging
import sys
from typing import Annotated

import typer

from towline.errors import ConflictError, InvalidInputError
from towline.leaving import leave_after
from towline.settings import load_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The processes that poll Temporal.")


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@app.command()
def control() -> None:
    """Run workflows and write records."""
    from workers.control_process import run_control

    _log_to_stderr()
    asyncio.run(run_control(load_settings()))


@app.command()
def agent(
    id_: Annotated[str | None, typer.Option("--id", help="The agent's id; default from the settings.")] = None,
) -> None:
    """Serve one Docker Engine."""
    from workers.agent_process import run_agent

    _log_to_stderr()
    settings = load_settings()
    asyncio.run(run_agent(settings, id_ or settings.agent.id))


def main() -> None:
    """Exit code 2 for settings that are refused, as everywhere; 1 for an agent that another worker serves."""
    try:
        app()
    except InvalidInputError as error:
        sys.stderr.write(f"towline: {error.message}\n")
        sys.exit(2)
    except ConflictError as error:
        sys.stderr.write(f"towline: {error.message}\n")
        sys.exit(1)


if __name__ == "__main__":
    leave_after(main)
