"""Ids of our own making, and the names and labels that containers carry."""

import re
import secrets
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
SESSION_ID: Final = re.compile(r"ses-[0-9a-hjkmnp-tv-z]{16}")
AGENT_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")

LABEL_SESSION: Final = "io.towline.session"
LABEL_KERNEL: Final = "io.towline.kernel"
LABEL_AGENT: Final = "io.towline.agent"
LABEL_OWNER: Final = "io.towline.owner"
LABEL_FLEET: Final = "io.towline.fleet"
LABEL_PREFIX: Final = "io.towline"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def new_session_id() -> str:
    """A fresh session id, `ses-` and 16 characters of 5 random bits each."""
    return f"ses-{_random(16)}"


def new_id(prefix: str) -> str:
    """A fresh id for other records, such as `usr-…` or `tok-…`."""
    return f"{prefix}-{_random(16)}"


def is_session_id(text: str) -> bool:
    """Whether `text` has the form of a session id."""
    return SESSION_ID.fullmatch(text) is not None


def container_name(session_id: str, kernel: int) -> str:
    """The one name that a kernel's container can have: creating it twice meets the first."""
    return f"towline-{session_id}-{kernel}"


def network_name(session_id: str) -> str:
    """The name of the session's own network on an agent."""
    return f"towline-{session_id}"


def kernel_name(kernel: int) -> str:
    """The host name of a kernel, which its peers in the session's own network can resolve."""
    return "main" if kernel == 0 else f"worker-{kernel}"


def container_labels(*, fleet_id: str, agent_id: str, session_id: str, kernel: int, owner: str) -> dict[str, str]:
    """Labels by which our containers are found again. Whatever lacks them is not ours and is never touched.

    The fleet's id keeps two installations apart that share an engine and have named their agents alike.
    """
    return {
        LABEL_FLEET: fleet_id,
        LABEL_AGENT: agent_id,
        LABEL_SESSION: session_id,
        LABEL_KERNEL: str(kernel),
        LABEL_OWNER: owner,
    }
