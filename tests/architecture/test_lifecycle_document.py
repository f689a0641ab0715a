"""docs/lifecycle.md shows the transition table as it is."""

import re

from scripts.lifecycle_diagram import DOCUMENT, diagram, renewed
from towline.domain.lifecycle import FINAL, TRANSITIONS, Reason, Status

RENEW = "renew it: python -m scripts.lifecycle_diagram"


def test_the_document_has_the_diagram_of_the_table() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert diagram() in document, RENEW
    assert renewed(document) == document, RENEW


def test_the_diagram_has_every_transition_and_no_other() -> None:
    drawn = set(re.findall(r"^\s+(\w+) --> (\w+)$", diagram(), re.MULTILINE))
    assert drawn == {(source, target) for source, onward in TRANSITIONS.items() for target in onward}
    assert {end for end in FINAL if f"{end} --> [*]" in diagram()} == FINAL


def test_the_document_explains_every_status_and_reason() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert [status for status in Status if f"`{status}`" not in document] == []
    assert [reason for reason in Reason if f"`{reason}`" not in document] == []
