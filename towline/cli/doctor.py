"""`towline doctor`: what works, and what to do about what does not."""

import json
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def doctor(
    docker_host: Annotated[str | None, typer.Option(help="The engine, as in DOCKER_HOST.", show_default=False)] = None,
    registry: Annotated[
        str | None, typer.Option(help="A registry to try: HOST[:PORT], or a URL.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the engine, a registry, disk, Temporal, PostgreSQL, ports and versions. Exit code 1 when something is wrong."""
    from dataclasses import asdict

    from towline.cli.checks import all_checks
    from towline.settings import load_settings

    checks = all_checks(load_settings(), docker_host=docker_host, registry=registry)
    if as_json:
        print(json.dumps([asdict(check) for check in checks]))
    else:
        for check in checks:
            print(f"{'✓' if check.ok else '✗'} {check.name}: {check.detail}")
            if check.advice:
                print(f"    {check.advice}")
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)
