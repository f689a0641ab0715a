"""Text on its way to Postgres: only what it refuses is replaced."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.store.text import keepable, to_json


@given(st.text(st.characters(), max_size=20))
def test_what_can_be_kept_is_kept_and_the_rest_is_marked_in_its_place(text: str) -> None:
    kept = keepable(text)
    kept.encode("utf-8")
    assert [
        mark == "\ufffd" if character == "\x00" or "\ud800" <= character <= "\udfff" else mark == character
        for character, mark in zip(text, kept, strict=True)
    ] == [True] * len(text)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (
            {"a\x00": ["\ud800", {"b": "\x00"}], "c": ("\udfff",)},
            {"a\ufffd": ["\ufffd", {"b": "\ufffd"}], "c": ["\ufffd"]},
        ),
        ({"a": "\\u0000", "b": "🙂\n\x01"}, {"a": "\\u0000", "b": "🙂\n\x01"}),
        ([1, 0.5, True, None], [1, 0.5, True, None]),
    ],
)
def test_json_is_the_value_with_such_text_replaced_at_any_depth(value: Any, kept: Any) -> None:
    assert json.loads(to_json(value)) == kept
