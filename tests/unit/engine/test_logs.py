"""Taking a log's frames apart, wherever the stream was cut."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from towline.engine.logs import Demultiplexer


def _frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40))),
    cuts=st.lists(st.integers(min_value=1, max_value=30)),
)
def test_what_was_written_comes_out_however_it_is_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(_frame(number, data) for number, data in frames)
    demultiplexer, out, at = Demultiplexer(), b"", 0
    for size in [*cuts, len(stream) + 1]:
        out += demultiplexer.feed(stream[at : at + size])
        at += size
    assert out == b"".join(data for _, data in frames)


def test_what_has_come_is_given_on_at_once() -> None:
    demultiplexer = Demultiplexer()
    assert demultiplexer.feed(_frame(1, b"half and half")[:12]) == b"half"
    assert demultiplexer.feed(b" and") == b" and"
