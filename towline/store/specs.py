"""A session's spec as JSON and back."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from pydantic import TypeAdapter

from towline.domain.placement import Wish
from towline.domain.sessions import SessionSpec
from towline.store.rows import SessionRow

_SPEC: Final = TypeAdapter(SessionSpec)
_WISH: Final = TypeAdapter(Wish)

WISH_FIELDS: Final = tuple(field.name for field in fields(Wish) if field.name in SessionSpec.__dataclass_fields__)
"""The parts of a spec that placement looks at; they have the same names there."""


def spec_to_json(spec: SessionSpec) -> dict[str, Any]:
    """The spec as JSON values."""
    value: dict[str, Any] = _SPEC.dump_python(spec, mode="json")
    return value


def spec_of(row: SessionRow) -> SessionSpec:
    """The spec that the row was made from."""
    return _SPEC.validate_python(row.spec)


def wish_of(spec: SessionSpec) -> Wish:
    """What a session wants of agents."""
    return wish_from([getattr(spec, name) for name in WISH_FIELDS])


def wish_from(parts: Sequence[Any]) -> Wish:
    """What a session wants of agents, from the values of `WISH_FIELDS`, as JSON or as in the spec."""
    return _WISH.validate_python(dict(zip(WISH_FIELDS, parts, strict=True)))
