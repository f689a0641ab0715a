"""The data directory: held by one stack at a time, and the record of the processes that a dead stack may have left."""

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TextIO

from towline.embedded.children import ProcessIdentity
from towline.errors import ConflictError, InvalidInputError, UnavailableError

_ENDING_SECONDS: Final = 10.0


class DirectoryInUseError(ConflictError):
    """Another live process holds the data directory; the message names both."""

    code = "data-dir-in-use"


@contextlib.contextmanager
def held(directory: Path) -> Iterator[Path]:
    """Create the directory where it is missing, and hold it. Raises `DirectoryInUseError` when somebody else does,
    `InvalidInputError` when it cannot be made or written to.

    The hold ends with the process, however it ends.
    """
    directory = directory.expanduser().resolve()
    with _lock_file(directory) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise DirectoryInUseError(
                f"{directory} is in use by a running stack (pid {holder}); stop it, or choose another --data-dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield directory


def _lock_file(directory: Path) -> TextIO:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (directory / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise InvalidInputError(f"{directory} cannot hold the data: {error.strerror}") from error


def is_held(directory: Path) -> bool:
    """Whether a stack runs on this directory now."""
    try:
        with (directory / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@dataclass(frozen=True, kw_only=True)
class _Noted:
    identity: ProcessIdentity
    death_signal: int


class ProcessRecord:
    """The processes of a stack, in a file, so that the next one can end those that outlived it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, _Noted] = {}

    def add(self, name: str, pid: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
        """Note a started process, which leads a process group, and what ends it for sure."""
        if identity := ProcessIdentity.of(pid):
            self._known[name] = _Noted(identity=identity, death_signal=int(death_signal))
            self._write()

    def remove(self, name: str) -> None:
        """Forget one that has ended."""
        if self._known.pop(name, None):
            self._write()

    def end_leftovers(self) -> tuple[str, ...]:
        """End what a former stack left running, provably started by it. Returns the names of the parts."""
        left = {name: noted for name, noted in self._read().items() if noted.identity.is_alive}
        for noted in left.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(noted.identity.pid, noted.death_signal)
        _wait_until_gone(noted.identity for noted in left.values())
        self._path.unlink(missing_ok=True)
        return tuple(left)

    def _read(self) -> dict[str, _Noted]:
        try:
            noted = json.loads(self._path.read_text(encoding="utf-8"))
            return {
                name: _Noted(identity=ProcessIdentity(**one["identity"]), death_signal=one["death_signal"])
                for name, one in noted.items()
            }
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return {}  # Never written, or cut by a power failure, after which nothing is left running either.

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        # On a full disk the stack goes on without: the record only backs the leash up.
        with contextlib.suppress(OSError):
            new.write_text(json.dumps({name: asdict(noted) for name, noted in self._known.items()}), encoding="utf-8")
            new.replace(self._path)


def _wait_until_gone(identities: Iterable[ProcessIdentity]) -> None:
    deadline = time.monotonic() + _ENDING_SECONDS
    for identity in identities:
        while identity.is_alive:
            if time.monotonic() > deadline:
                raise UnavailableError(f"process {identity.pid} of a former stack does not end")
            time.sleep(0.02)
