"""Text that Postgres cannot keep: the NUL character, and halves of surrogate pairs.

Input has been refused before it comes here. What an engine, a registry or a container says is not ours to refuse, and a
sentence about a failure must not fail to be written: such a character is replaced by U+FFFD.
"""

import json
import re
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.types.string import StrDumper

_UNKEEPABLE: Final = re.compile("[\x00\ud800-\udfff]")


def keepable(text: str) -> str:
    """The text with U+FFFD for each character that Postgres refuses."""
    return _UNKEEPABLE.sub("\ufffd", text)


def to_json(value: Any) -> str:
    """JSON that Postgres can keep as JSONB."""
    return json.dumps(_keepable_in(value))


def replace_unkeepable_text(connection: AsyncConnection[Any]) -> None:
    """Make a connection replace such characters in every text that is sent over it."""
    connection.adapters.register_dumper(str, _KeepableDumper)


class _KeepableDumper(StrDumper):
    def dump(self, obj: str) -> Any:
        return super().dump(keepable(obj))


def _keepable_in(value: Any) -> Any:
    match value:
        case str():
            return keepable(value)
        case dict():
            return {_keepable_in(key): _keepable_in(item) for key, item in value.items()}
        case list() | tuple():
            return [_keepable_in(item) for item in value]
        case _:
            return value
