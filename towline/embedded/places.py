"""Where the embedded stack keeps its data, and what it leaves there for clients."""

import os
from pathlib import Path
from typing import Final

import platformdirs

_FOR_ROOT: Final = Path("/var/lib/towline")
"""Not root's home: PostgreSQL runs as another account there, which could not reach it."""


def default_data_directory() -> Path:
    """`$TOWLINE_DATA_DIR`, or the user's data directory; an absolute path, which may not exist yet."""
    if given := os.environ.get("TOWLINE_DATA_DIR"):
        return Path(given).expanduser().absolute()
    return _FOR_ROOT if os.geteuid() == 0 else platformdirs.user_data_path("towline")


def token_path(directory: Path) -> Path:
    """Where the first superadmin token is, readable by its owner only."""
    return directory / "token"


def api_url_path(directory: Path) -> Path:
    """Where the URL of the stack's API is."""
    return directory / "api-url"
