from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.router.http.limits import FrontLimits
from qanat.router.http.request_reader import Incoming, RequestReader

GOOD = (
    b'POST /v1/completions?a=b HTTP/1.1\r\nHost: h\r\nX-A: b\r\nContent-Length: 7\r\n\r\n{"a":1}'
    b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\nT: u\r\n\r\n"
    b"POST /u HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
    b"GET /g HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"
)


def read(pieces: list[bytes]) -> list[Incoming]:
    reader = RequestReader(FrontLimits())
    found: list[Incoming] = []
    for piece in pieces:
        found += reader.feed(piece)
        if found and found[-1].refusal is not None:
            break
    return found


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(stream) + 1) for place in places}), len(stream)]
    return [stream[a:b] for a, b in zip(edges, edges[1:], strict=False) if a < b]


def test_the_requests_of_the_stream_below() -> None:
    found = read([GOOD])
    assert [(each.method, each.target, each.body) for each in found] == [
        ("POST", "/v1/completions?a=b", b'{"a":1}'),
        ("POST", "/c", b"abcd"),
        ("POST", "/u", b"hi"),
        ("GET", "/g", b""),
        ("HEAD", "/", b""),
    ]
    assert found[0].headers == [(b"host", b"h"), (b"x-a", b"b"), (b"content-length", b"7")]


@given(places=st.lists(st.integers(0, len(GOOD)), max_size=30))
def test_any_cut_gives_the_same_requests(places: list[int]) -> None:
    assert read(cut(GOOD, places)) == read([GOOD])


@given(
    places=st.lists(st.integers(0, 10_000), max_size=5),
    at=st.integers(0, len(GOOD)),
    byte=st.binary(min_size=1),
)
def test_whatever_comes_is_read_or_refused_and_nothing_follows_a_refusal(
    places: list[int], at: int, byte: bytes
) -> None:
    stream = GOOD[:at] + byte + GOOD[at + len(byte) :]
    found = read(cut(stream, places))
    assert all(each.refusal is None for each in found[:-1])
