"""How a client finds the API: what it is told, else what the embedded stack of this machine has left for it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from towline.embedded.places import api_url_path, default_data_directory, token_path

DEFAULT_API_URL: Final = "http://127.0.0.1:8470"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """`api_url` has no slash at its end. `token` None: none was found."""

    api_url: str
    token: str | None = field(repr=False)


def find_connection(environment: Mapping[str, str] = os.environ) -> Connection:
    """`TOWLINE_API_URL` and `TOWLINE_TOKEN`, each before the file in `TOWLINE_DATA_DIR` or the default data directory.

    The token in the file is for the stack that made it: it is not sent to any other URL.
    """
    directory = default_data_directory(environment)
    local_url = (_first_line(api_url_path(directory)) or DEFAULT_API_URL).rstrip("/")
    api_url = environment.get("TOWLINE_API_URL", "").rstrip("/") or local_url
    token = environment.get("TOWLINE_TOKEN") or (_first_line(token_path(directory)) if api_url == local_url else None)
    return Connection(api_url=api_url, token=token)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
