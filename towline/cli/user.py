"""`towline user …`."""

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from towline.cli.client import Client
from towline.cli.output import AsJson, age, print_json, print_table

app = typer.Typer(help="Users and their tokens; for superadmins.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A user's name.")]


@app.command()
def add(
    name: Name,
    superadmin: Annotated[bool, typer.Option("--superadmin", help="May do everything.")] = False,
    project: Annotated[str | None, typer.Option(help="The project whose quota they share.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Make a user."""
    role = "superadmin" if superadmin else "user"
    _show(Client().ask("POST", "/v1/users", body={"name": name, "role": role, "project": project}), as_json)


@app.command()
def move(
    name: Name,
    project: Annotated[str | None, typer.Argument(help="The project; left out: none.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Put a user into a project, whose quota they share from then on."""
    _show(Client().ask("PATCH", f"/v1/users/{quote(name, safe='')}", body={"project": project}), as_json)


@app.command("ls")
def list_(as_json: AsJson = False) -> None:
    """List users."""
    found = Client().ask("GET", "/v1/users")["users"]
    if as_json:
        print_json(found)
    else:
        rows = [(one["name"], one["role"], one["project"], age(one["created_at"])) for one in found]
        print_table(("NAME", "ROLE", "PROJECT", "AGE"), rows)


@app.command()
def token(
    name: Name,
    label: Annotated[str, typer.Option(help="What the token is for.")] = "",
    revoke: Annotated[str | None, typer.Option(help="Make this token (its id) worthless instead.")] = None,
    list_tokens: Annotated[bool, typer.Option("--list", help="List the user's tokens instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a token for a user and print it; it is shown this once."""
    client = Client()
    if revoke is not None:
        client.ask("DELETE", f"/v1/tokens/{quote(revoke, safe='')}")
        sys.stderr.write(f"revoked {revoke}\n")
    elif list_tokens:
        found = client.ask("GET", f"/v1/users/{quote(name, safe='')}/tokens")["tokens"]
        if as_json:
            print_json(found)
        else:
            rows = [(one["id"], one["name"], age(one["created_at"]), one["revoked_at"]) for one in found]
            print_table(("ID", "NAME", "AGE", "REVOKED"), rows)
    else:
        made = client.ask("POST", f"/v1/users/{quote(name, safe='')}/tokens", body={"name": label})
        if as_json:
            print_json(made)
        else:
            sys.stdout.write(made["token"] + "\n")


def _show(user: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(user)
    else:
        sys.stdout.write(" ".join(str(user[part]) for part in ("name", "role", "project") if user[part]) + "\n")
