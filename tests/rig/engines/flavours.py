"""The two kinds of engine: Debian 12's dockerd with the classic store, Debian 13's with the containerd store."""

from pathlib import Path
from typing import Final

from tests.rig.engines.engine import Engine, EngineOptions, EnginePaths, Flavour
from tests.rig.engines.trixie import PRIVATE_MOUNTS, trixie_root

# The root is bound onto itself, because runc cannot move into a root that is not a mount point.
_ENTER_CHROOT: Final = """
set -e
root=$1 run=$2 data=$3 config=$4
mount --bind "$root" "$root"
for name in proc sys dev; do mount --rbind "/$name" "$root/$name"; done
for name in run tmp; do mount -t tmpfs tmpfs "$root/$name"; done
mkdir -p "$root$run" "$root$data"
mount --bind "$run" "$root$run"
mount --bind "$data" "$root$data"
exec chroot "$root" /usr/sbin/dockerd --config-file "$config"
"""


def classic_engine(root: Path, options: EngineOptions | None = None) -> Engine:
    """dockerd 20.10 with the overlay2 store, not started yet: use it as a context manager. `root` takes its data and log."""
    return Engine(root, Flavour(name="dockerd", argv=_classic_argv, features={}), options or EngineOptions())


def containerd_engine(root: Path, options: EngineOptions | None = None) -> Engine:
    """dockerd 26.1 with the containerd store, from a Debian 13 chroot that is made at the first use (half a minute, 500 MB)."""
    chroot = trixie_root()

    def argv(paths: EnginePaths, config: Path) -> tuple[str, ...]:
        places = (str(chroot), str(paths.run), str(paths.data), str(config))
        return (*PRIVATE_MOUNTS, "/bin/sh", "-c", _ENTER_CHROOT, "dockerd", *places)

    flavour = Flavour(name="dockerd with containerd store", argv=argv, features={"containerd-snapshotter": True})
    return Engine(root, flavour, options or EngineOptions())


def _classic_argv(paths: EnginePaths, config: Path) -> tuple[str, ...]:
    return ("/usr/sbin/dockerd", "--config-file", str(config))
