"""`towline doctor`: what works, and what to do about what does not."""

import typer

app = typer.Typer()
