"""Small parts for tests of the supervisor; as a program, a supervised stack of the real servers for tests that kill it.

python -m tests.contract.supervised DIRECTORY
"""

import asyncio
import signal
import sys
from pathlib import Path

from towline.embedded.children import Command
from towline.embedded.directory import held
from towline.embedded.parts import Part
from towline.embedded.ports import free_port
from towline.embedded.stack import Stack
from towline.embedded.supervisor import Supervisor

SERVES = """
import pathlib, signal, sys, time
journal = pathlib.Path('journal')
def note(what):
    with journal.open('a') as file:
        file.write(f'{what} {sys.argv[1]}\\n')
def stop(*_):
    note('stopped')
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
note('started')
pathlib.Path(f'{sys.argv[1]}.ready').touch()
while True:
    signal.pause()
"""
DIES = "import sys; print('no more bytes on the shelf'); sys.exit(3)"
IGNORES_STOP = SERVES.replace("signal.signal(signal.SIGTERM, stop)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")


def part(
    name: str, directory: Path, program: str = SERVES, *, ready_seconds: float = 30, grace_seconds: float = 10
) -> Part:
    """A part that runs a Python program in `directory`, and is ready when `NAME.ready` is there."""
    argv = (sys.executable, "-I", "-S", "-u", "-c", program, name)
    command = Command(name=name, argv=argv, cwd=directory, grace_seconds=grace_seconds)

    async def is_ready() -> bool:
        return (directory / f"{name}.ready").exists()

    def prepare() -> Command:
        (directory / f"{name}.ready").unlink(missing_ok=True)
        return command

    return Part(name=name, prepare=prepare, is_ready=is_ready, ready_seconds=ready_seconds)


async def _serve(directory: Path) -> None:
    stack = Stack(directory=directory, agents=(), keys=(), temporal_port=free_port(), temporal_ui_port=free_port())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    supervisor = Supervisor(stack.stages()[:1], directory=directory, say=lambda line: print(line, flush=True))
    supervisor.end_leftovers()
    await supervisor.run(stop, lambda: print("READY", flush=True))


if __name__ == "__main__":
    with held(Path(sys.argv[1])) as held_directory:
        asyncio.run(_serve(held_directory))
