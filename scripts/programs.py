"""The programs that Python packages cannot bring: Docker, a registry, busybox. Installed where that can be done."""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program, the Debian package that has it, and what it is needed for."""

    name: str
    package: str
    purpose: str


_ENGINE: Final = Program(name="dockerd", package="docker.io", purpose="run containers")
_REGISTRY: Final = Program(name="docker-registry", package="docker-registry", purpose="serve images on this machine")
_BUSYBOX: Final = Program(name="busybox", package="busybox-static", purpose="build the images that are pulled")
_DEBOOTSTRAP: Final = Program(name="debootstrap", package="debootstrap", purpose="test the containerd image store")
_COMPOSE: Final = Program(name="docker-compose", package="docker-compose", purpose="check docker-compose.temporal.yml")

NEEDED: Final = {
    "demo": (_REGISTRY, _BUSYBOX),
    "engine": (_ENGINE,),
    "test": (_ENGINE, _REGISTRY, _BUSYBOX, _DEBOOTSTRAP, _COMPOSE),
}
_PLACES: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin"


def missing(programs: tuple[Program, ...]) -> list[Program]:
    """Those that are not installed."""
    return [program for program in programs if not _is_usable(program, shutil.which(program.name, path=_PLACES))]


def _is_usable(program: Program, found: str | None) -> bool:
    # Another package has a busybox that needs libraries, which an image of nothing else does not have.
    return found is not None and (program is not _BUSYBOX or b"ld-linux" not in Path(found).read_bytes()[:4096])


def ensure(programs: tuple[Program, ...]) -> None:
    """Install what is missing with apt, as root on Debian or Ubuntu. Elsewhere raises `SystemExit` with what to type."""
    wanted = missing(programs)
    if not wanted:
        return
    packages = [program.package for program in wanted]
    for program in wanted:
        sys.stderr.write(f"{program.name} is missing; it is needed to {program.purpose}\n")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SystemExit(
            "It cannot be installed from here: that needs root on Debian or Ubuntu. There type:\n"
            f"  sudo {' '.join(command)}\n"
            "Elsewhere put these programs on the PATH by your system's own means and try again: dockerd or a Docker Engine "
            "that answers, docker-registry (the registry of the CNCF distribution), and a static busybox at /bin/busybox."
        )
    sys.stderr.write(f"installing {' '.join(packages)} …\n")
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for step in (["apt-get", "update"], command):
        done = subprocess.run(step, env=quiet, capture_output=True, text=True, check=False)
        if done.returncode != 0 and step is command:
            raise SystemExit(f"{' '.join(step)} failed:\n{done.stderr[-2000:]}")
    if still := missing(programs):
        raise SystemExit(f"installed, and still not found: {', '.join(program.name for program in still)}")


def host_engine() -> str | None:
    """The engine that this machine already has, as in DOCKER_HOST; None where none answers."""
    import docker
    from docker.errors import DockerException

    for url in (os.environ.get("DOCKER_HOST"), "unix:///var/run/docker.sock"):
        if url is None or (url.startswith("unix://") and not Path(url.removeprefix("unix://")).exists()):
            continue
        try:
            client = docker.APIClient(base_url=url, version="auto", timeout=5)
            client.ping()
        except DockerException:
            continue
        return url
    return None


def main() -> None:
    """Install what a purpose needs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="purpose", choices=sorted(NEEDED), required=True)
    ensure(NEEDED[parser.parse_args().purpose])


if __name__ == "__main__":
    main()
