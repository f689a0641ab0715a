"""`towline user …`."""

import sys
from typing import Annotated
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
    as_json: AsJson = False,
) -> None:
    """Make a user."""
    role = "superadmin" if superadmin else "user"
    made = Client().ask("POST", "/v1/users", body={"name": name, "role": role})
    if as_json:
        print_json(made)
    else:
        sys.stdout.write(f"{made['name']} {made['role']}\n")


@app.command("ls")
def list_(as_json: AsJson = False) -> None:
    """List users."""
    found = Client().ask("GET", "/v1/users")["users"]
    if as_json:
        print_json(found)
    else:
        print_table(("NAME", "ROLE", "AGE"), [(one["name"], one["role"], age(one["created_at"])) for one in found])


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
