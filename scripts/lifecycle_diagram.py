"""The life cycle's diagram, made from the transition table: `python -m scripts.lifecycle_diagram` writes it into the docs."""

from pathlib import Path
from typing import Final

from towline.domain.lifecycle import FINAL, TRANSITIONS, Status

DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs" / "lifecycle.md"
_BEGIN: Final = "```mermaid\n"
_END: Final = "```\n"


def diagram() -> str:
    """A Mermaid state diagram with every transition of the table."""
    lines = ["stateDiagram-v2", f"    [*] --> {Status.PENDING}"]
    for status in Status:
        lines += [f"    {status} --> {to}" for to in Status if to in TRANSITIONS[status]]
    lines += [f"    {status} --> [*]" for status in Status if status in FINAL]
    return "\n".join(lines) + "\n"


def renewed(document: str) -> str:
    """The document with today's diagram in the place of the one that it has."""
    before, _, rest = document.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{diagram()}{_END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
