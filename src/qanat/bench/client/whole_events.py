"""A short way through a complete stream whose chunks hold whole events, as servers of the OpenAI API send them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from qanat.bench.client.framing import Framer, FramingError, chunk_size

_END_OF_LINE = b"\r\n"
_MARK, _END = b"data: ", b"\n\n"
"""An event's beginning and end."""
_LAST_CHUNK = b"0\r\n\r\n"


def read_whole_events(pieces: Sequence[bytes]) -> list[tuple[int, bytes]] | None:
    """The data of each event of an answer, with the number of the piece that completed it.

    It gives what `Framer` and `EventReader` do, in a fraction of their time, or None where it cannot: for an answer
    that is no complete stream of events in chunks, or has events that are not one `data:` line.
    """
    head, _, body = b"".join(pieces).partition(_END_OF_LINE * 2)
    head += _END_OF_LINE * 2
    *chunks, last = body.split(_END + _END_OF_LINE)
    framer = Framer()
    try:
        framer.feed(head)
        if framer.status == 200 and framer.is_chunked and framer.is_event_stream and last == _LAST_CHUNK:
            return _read_chunks(chunks, len(head), list(accumulate(map(len, pieces))))
    except FramingError:
        pass
    return None


def _read_chunks(
    chunks: Sequence[bytes], at: int, piece_ends: Sequence[int]
) -> list[tuple[int, bytes]] | None:
    """Reads chunks, each without its end, the first of which begins at a place of the answer.

    Raises:
        FramingError: a chunk has no size.
    """
    found: list[tuple[int, bytes]] = []
    piece = 0
    for chunk in chunks:
        size, _, data = chunk.partition(_END_OF_LINE + _MARK)
        if chunk_size(size) != len(_MARK) + len(data) + len(_END) or b"\r" in data:
            return None
        events = data.split(_END + _MARK)
        if data.count(b"\n") != len(_END) * (len(events) - 1):
            return None
        at += len(size) + len(_END_OF_LINE)
        for event in events:
            at += len(_MARK) + len(event) + len(_END)
            while piece_ends[piece] < at:
                piece += 1
            found.append((piece, event))
        at += len(_END_OF_LINE)
    return found
