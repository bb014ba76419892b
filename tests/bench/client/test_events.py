from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.client.events import EventReader
from tests.bench.client.test_framing import CUTS, pieces_of

LINE = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=12).map(str.encode)
EVENTS = st.lists(st.lists(LINE, min_size=1, max_size=3), max_size=6)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(EVENTS, CUTS, ENDS, st.booleans())
def test_each_event_comes_once_whatever_the_pieces_and_line_ends(
    events: list[list[bytes]], sizes: list[int], end: bytes, has_space: bool
) -> None:
    mark = b"data: " if has_space else b"data:"
    stream = b"".join(
        b": comment" + end + b"id: 7" + end + b"".join(mark + line + end for line in lines) + end
        for lines in events
    )
    reader = EventReader()
    found = [event for piece in pieces_of(stream, sizes) for event in reader.feed(piece)] + reader.close()
    wanted = [[line if has_space else line.removeprefix(b" ") for line in lines] for lines in events]
    assert found == [b"\n".join(lines) for lines in wanted]


def test_an_event_comes_with_the_piece_that_completes_it() -> None:
    reader = EventReader()
    assert reader.feed(b'data: {"a"') == []
    assert reader.feed(b": 1}\n") == []
    assert reader.feed(b"\ndata: x") == [b'{"a": 1}']
    assert reader.close() == [b"x"]
    assert EventReader().feed(b"data: a\r\n\r\n") == [b"a"]
