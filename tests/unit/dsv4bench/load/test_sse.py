"""Events out of bytes, however these were split."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.load.sse import EventParser

STREAM = (
    '\ufeff: a comment\ndata: {"text": "żółw 龟 🐢"}\n\nevent: x\ndata: one\ndata: two\n\nid: 7\n\n'
    "data:no space\n\ndata: [DONE]\n\n"
)
EVENTS = ['{"text": "żółw 龟 🐢"}', "one\ntwo", "no space", "[DONE]"]


def parsed(chunks: list[bytes]) -> list[str]:
    parser = EventParser()
    return [data.decode() for chunk in chunks for data in parser.feed(chunk)]


@given(st.lists(st.integers(0, len(STREAM.encode()))), st.sampled_from(["\n", "\r\n", "\r"]))
def test_every_split_and_line_end_gives_the_same_events(places: list[int], line_end: str) -> None:
    data = STREAM.replace("\n", line_end).encode()
    cuts = sorted({0, *(place for place in places if place < len(data)), len(data)})
    chunks = [data[begin:end] for begin, end in pairwise(cuts)]
    assert parsed(chunks) == EVENTS


@given(st.binary(max_size=200), st.integers(1, 7))
def test_any_bytes_read_the_same_in_small_pieces(data: bytes, size: int) -> None:
    whole, pieces = EventParser(), EventParser()
    expected = whole.feed(data)
    found = [event for at in range(0, len(data), size) for event in pieces.feed(data[at : at + size])]
    assert found == expected


def test_an_event_without_its_empty_line_is_none() -> None:
    parser = EventParser()
    assert parser.feed(b'data: {"x": 1}\n') == []
    assert parser.unfinished
    assert parser.feed(b"\n") == [b'{"x": 1}']
    assert not parser.unfinished
    assert parser.feed(b"data: cut in the mid") == []
    assert parser.unfinished
