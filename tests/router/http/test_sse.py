from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qanat.router.http.sse import EventSplitter, EventTooLarge, event_data

ENDS = (b"\n", b"\r\n", b"\r")
LINES = st.sampled_from(
    [b"", b"data: {}", b"data:a", b"data", b": ping", b"event: x", b"id: 7", b"data: \xc3\xa4"]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    return b"".join(draw(LINES) + draw(st.sampled_from(ENDS)) for _ in range(draw(st.integers(0, 12))))


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(stream) + 1) for place in places}), len(stream)]
    return [stream[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def split(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events, splitter.tail


@given(stream=streams() | st.binary(max_size=60), places=st.lists(st.integers(0, 10_000), max_size=20))
@example(stream=b"a\n\r\nb\r\r\nc\r\n\rd\n\n", places=list(range(30)))
def test_any_cut_of_any_stream_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    events, tail = split(cut(stream, places))
    assert (events, tail) == split([stream])
    assert b"".join(events) + tail == stream


@given(stream=streams())
def test_events_end_where_a_line_by_line_reader_ends_them(stream: bytes) -> None:
    stream += b"x"  # a last byte that settles whether a return stands alone
    expected, event, position, is_after_text = [], b"", 0, True
    while position < len(stream):
        end = next((e for e in (b"\r\n", b"\n", b"\r") if stream.startswith(e, position)), None)
        piece = end or stream[position : position + 1]
        event += piece
        position += len(piece)
        if end and not is_after_text:
            expected.append(event)
            event, is_after_text = b"", True
        else:
            is_after_text = end is None
    assert split([stream]) == (expected, event)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_events_come_out_with_the_byte_that_completes_them(end: bytes) -> None:
    splitter = EventSplitter()
    event = b"data: 1" + end + b"data: 2" + end + end
    for byte in event[:-1]:
        assert splitter.feed(bytes([byte])) == []
    assert splitter.feed(event[-1:]) == [event]
    assert splitter.tail == b""


def test_one_event_in_one_piece_is_handed_on_without_a_copy() -> None:
    piece = b'data: {"a": 1}\n\n'
    assert EventSplitter().feed(piece)[0] is piece


def test_a_stream_without_ends_is_bounded() -> None:
    splitter = EventSplitter(max_event_bytes=10)
    assert splitter.feed(b"0123456789") == []
    with pytest.raises(EventTooLarge):
        splitter.feed(b"0")


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: [DONE]\n\n", b"[DONE]"),
        (b"data:x\r\n\r\n", b"x"),
        (b"id: 1\ndata: a\ndata:  b\n: note\n\n", b"a\n b"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"\ndata: late\n\n", b"late"),
        (b"data\n\n", b""),
        (b": ping\n\n", None),
        (b"event: data: no\n\n", None),
    ],
)
def test_payload_of_an_event(event: bytes, data: bytes | None) -> None:
    assert event_data(event) == data
