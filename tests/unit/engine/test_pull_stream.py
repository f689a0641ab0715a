"""The body of a pull, cut anywhere."""

import json

from hypothesis import given
from hypothesis import strategies as st

from towline.engine.pull_stream import LineReader

MESSAGES = [{"status": "Pulling fs layer", "id": f"{n:012x}", "progressDetail": {}} for n in range(20)]
BODY = b"".join(json.dumps(message).encode() + b"\r\n" for message in MESSAGES)


@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=30).map(sorted))
def test_messages_arrive_whole_however_the_body_is_cut(cuts: list[int]) -> None:
    reader = LineReader()
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(BODY)], strict=True):
        found += reader.feed(BODY[begin:end])
    assert found + reader.end() == MESSAGES


@given(noise=st.binary(max_size=200))
def test_what_is_no_message_is_passed_over(noise: bytes) -> None:
    reader = LineReader()
    found = reader.feed(noise + b"\n" + b'{"status": "x"}\n')
    assert found[-1] == {"status": "x"}


def test_a_last_line_without_an_end_counts_if_it_is_whole() -> None:
    reader = LineReader()
    assert reader.feed(b'{"status": "Status: ok"}') == []
    assert reader.end() == [{"status": "Status: ok"}]
    assert LineReader().end() == []


def test_a_line_without_end_does_not_grow_for_ever() -> None:
    reader = LineReader()
    for _ in range(40):
        assert reader.feed(b"x" * 100_000) == []
    assert reader.feed(b'\n{"status": "x"}\n') == [{"status": "x"}]
