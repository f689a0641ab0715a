"""A Debian 13 root with its Docker Engine, made once with debootstrap and kept."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CACHE_VARIABLE: Final = "TOWLINE_TEST_TRIXIE"
_CACHE_DEFAULT: Final = Path(__file__).parents[3] / ".towline" / "cache" / "trixie"
_PACKAGES: Final = "docker.io,ca-certificates,iptables"

PRIVATE_MOUNTS: Final = ("/usr/bin/unshare", "--mount", "--propagation", "private")
"""In front of a command: its mounts are seen by it alone, and end with it, however it ends."""


def trixie_root() -> Path:
    """The root, made now if it is not there: at `$TOWLINE_TEST_TRIXIE`, else below the checkout's `.towline/cache`.

    Raises `RuntimeError` with debootstrap's last words when it cannot be made. Needs to be root.
    """
    root = Path(os.environ.get(_CACHE_VARIABLE) or _CACHE_DEFAULT)
    root.parent.mkdir(parents=True, exist_ok=True)
    with _locked(root.with_name(f"{root.name}.lock")):
        if not root.is_dir():
            _bootstrap(root)
    return root


def apt_mirror() -> str:
    """The address of the Debian archive that apt uses on this machine, as apt itself reads its sources."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(SUITE)", "Created-By: Packages", "Component: main"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for line in listed:
        address, _, suite = line.partition(" ")
        # The archives of security updates and of other vendors hold no base system.
        if not suite.endswith(("-security", "-updates")) and "debian" in address:
            return address
    raise RuntimeError(f"apt knows no Debian archive; it lists {listed}")


def _bootstrap(root: Path) -> None:
    unfinished = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    debootstrap = [
        "debootstrap",
        "--variant=minbase",
        f"--include={_PACKAGES}",
        "trixie",
        str(unfinished),
        apt_mirror(),
    ]
    command = [*PRIVATE_MOUNTS, *debootstrap]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError("debootstrap failed:\n" + "\n".join((made.stdout + made.stderr).splitlines()[-15:]))
    shutil.rmtree(unfinished / "var" / "cache" / "apt", ignore_errors=True)
    unfinished.rename(root)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
