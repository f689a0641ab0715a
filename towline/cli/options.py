"""The options of `towline run`, in the manner of `docker run`."""

from pathlib import Path
from typing import Annotated

import typer

Image = Annotated[str, typer.Argument(help="The image, as in `docker run`.")]
Command = Annotated[list[str] | None, typer.Argument(help="The command, after `--`.", show_default=False)]
Name = Annotated[str | None, typer.Option(help="A name for the session.")]
Interactive = Annotated[bool, typer.Option("--interactive-kind", help="A session that lives until ended.")]
Env = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE.")]
EnvFile = Annotated[Path | None, typer.Option(help="Lines of NAME=VALUE.", exists=True, dir_okay=False)]
Cpus = Annotated[float, typer.Option(help="Cores for each kernel.")]
Memory = Annotated[str, typer.Option("--memory", "-m", help="Memory for each kernel, such as 512m.")]
Gpus = Annotated[int, typer.Option(help="GPUs for each kernel.")]
Shm = Annotated[str | None, typer.Option(help="Size of /dev/shm.")]
Kernels = Annotated[int, typer.Option(help="How many containers.")]
MultiAgent = Annotated[bool, typer.Option(help="Kernels may be on several agents.")]
PullPolicy = Annotated[str, typer.Option(help="always, if-not-present, never.")]
AllowStale = Annotated[bool, typer.Option(help="With always: the image present, if the registry is away.")]
Network = Annotated[str, typer.Option(help="bridge, none, host.")]
Publish = Annotated[list[str] | None, typer.Option("--publish", "-p", help="[HOST:]CONTAINER[/udp].")]
Volume = Annotated[list[str] | None, typer.Option("--volume", "-v", help="VOLUME:/TARGET[:ro].")]
Label = Annotated[list[str] | None, typer.Option(help="NAME=VALUE.")]
Agent = Annotated[str | None, typer.Option(help="Only on this agent.")]
Priority = Annotated[int, typer.Option(help="0 to 100.")]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds that it may run.")]
PullDeadline = Annotated[float | None, typer.Option(help="Seconds that the pull may take.")]
StopGrace = Annotated[float, typer.Option(help="Seconds from stop to kill.")]
Platform = Annotated[str | None, typer.Option(help="os/arch[/variant].")]
Entrypoint = Annotated[str | None, typer.Option(help="Instead of the image's.")]
Workdir = Annotated[str | None, typer.Option("--workdir", "-w", help="Instead of the image's.")]
Tty = Annotated[bool, typer.Option("--tty", "-t", help="A terminal for the command.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Print the session's id and return.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")]
