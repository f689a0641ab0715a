"""The program `towline`: composes the commands, and turns errors into exit codes."""

import sys

import typer

from towline.cli import agents, doctor, fleet, quota, run, session, stack, user
from towline.errors import InvalidInputError, TowlineError
from towline.leaving import leave_after

app = typer.Typer(
    name="towline",
    help="Container sessions on a fleet of Docker hosts, with image pulls that can be seen, shared and stopped.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(stack.app)
app.add_typer(doctor.app)
app.add_typer(run.app)
app.add_typer(session.app, name="session")
app.add_typer(fleet.pulls, name="pull")
app.add_typer(agents.agents, name="agent")
app.add_typer(user.app, name="user")
app.add_typer(quota.app, name="quota")


def main() -> None:
    """Raises `SystemExit`. Exit codes: 0 done, 1 failed, 2 bad usage or refused input."""
    try:
        app()
    except TowlineError as error:
        print(f"towline: {error.message}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InvalidInputError) else 1)


def entry() -> None:
    """The program, as a process of its own."""
    leave_after(main)


if __name__ == "__main__":
    entry()
