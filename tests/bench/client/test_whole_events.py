from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.client.events import EventReader
from qanat.bench.client.framing import Framer
from qanat.bench.client.whole_events import read_whole_events
from tests.bench.client.test_framing import CUTS, chunked, pieces_of

TEXTS = st.lists(
    st.one_of(
        st.text(alphabet='ab"{: ', max_size=9).map(lambda text: f"data: {text}\n\n".encode()),
        st.sampled_from(
            [b": comment\n\n", b"data:x\n\n", b"data: a\ndata: b\n\n", b"data: a\r\n\r\n", b"\n\n\r\n", b"0"]
        ),
    ),
    max_size=6,
)


def read_step_by_step(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    framer, events = Framer(), EventReader()
    return [(number, data) for number, piece in enumerate(pieces) for data in events.feed(framer.feed(piece))]


@given(st.lists(TEXTS.map(b"".join), max_size=5), CUTS)
def test_it_gives_what_the_long_way_does_or_nothing(chunks: list[bytes], sizes: list[int]) -> None:
    pieces = pieces_of(chunked([chunk for chunk in chunks if chunk]), sizes)
    found = read_whole_events(pieces)
    assert found is None or found == read_step_by_step(pieces)


def test_streams_of_one_line_an_event_go_the_short_way() -> None:
    answer = chunked([b"data: a\n\n", b"data: b\n\ndata: c\n\n", b"data: [DONE]\n\n"])
    first = answer.index(b"data: c") + 3
    pieces = [answer[:first], answer[first:]]
    assert read_whole_events(pieces) == [(0, b"a"), (0, b"b"), (1, b"c"), (1, b"[DONE]")]


def test_what_is_not_complete_goes_the_long_way() -> None:
    answer = chunked([b"data: a\n\n"])
    assert read_whole_events([answer[:-1]]) is None
    assert read_whole_events([answer, b"x"]) is None
    assert read_whole_events([]) is None
    assert read_whole_events([answer.replace(b"200", b"500")]) is None
