"""Documents that name tests name tests that exist."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize("document", [path.name for path in sorted((_ROOT / "docs").glob("*.md"))])
def test_a_test_that_is_named_exists(document: str) -> None:
    named = _NAMED.findall((_ROOT / "docs" / document).read_text())
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (_ROOT / "tests" / path).read_text()]
    assert not missing
