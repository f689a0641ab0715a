"""Where the embedded stack keeps its data, and what it leaves there for clients."""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import platformdirs

_FOR_ROOT: Final = Path("/var/lib/towline")
"""Not root's home: PostgreSQL runs as another account there, which could not reach it."""


def default_data_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """`$TOWLINE_DATA_DIR`, or the user's data directory; an absolute path, which may not exist yet."""
    if given := environment.get("TOWLINE_DATA_DIR"):
        return Path(given).expanduser().absolute()
    return _FOR_ROOT if os.geteuid() == 0 else platformdirs.user_data_path("towline")


def token_path(directory: Path) -> Path:
    """Where the first superadmin token is, readable by its owner only."""
    return directory / "token"


def api_url_path(directory: Path) -> Path:
    """Where the URL of the stack's API is."""
    return directory / "api-url"


def stack_path(directory: Path) -> Path:
    """Where a running stack says its addresses, as JSON."""
    return directory / "stack.json"


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody but its owner can read at any moment, in the place of an older one."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600, exist_ok=False)
    new.write_text(f"{text}\n", encoding="utf-8")
    new.replace(path)


def sealing_key(directory: Path) -> str:
    """The key that seals the secrets of this stack: made the first time, kept with the data, and lost only with it."""
    path = directory / "sealing-key"
    if not path.exists():
        write_private(path, base64.urlsafe_b64encode(os.urandom(32)).decode())
    return path.read_text(encoding="ascii").strip()
