"""A session's spec as JSON and back."""

from typing import Any

from pydantic import TypeAdapter

from towline.domain.sessions import SessionSpec
from towline.store.rows import SessionRow

_SPEC = TypeAdapter(SessionSpec)


def spec_to_json(spec: SessionSpec) -> dict[str, Any]:
    """The spec as JSON values."""
    value: dict[str, Any] = _SPEC.dump_python(spec, mode="json")
    return value


def spec_of(row: SessionRow) -> SessionSpec:
    """The spec that the row was made from."""
    return _SPEC.validate_python(row.spec)
