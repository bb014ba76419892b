from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.client.framing import Framer, FramingError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CUTS = st.lists(st.integers(1, 9), max_size=60)
CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def pieces_of(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [piece for piece in (*pieces, data[at:]) if piece]


def chunked(chunks: list[bytes], trailer: bytes = b"", extension: bytes = b"") -> bytes:
    framed = b"".join(b"%X%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n" + trailer + b"\r\n"


def fed(data: bytes, sizes: list[int]) -> tuple[Framer, bytes]:
    framer, body = Framer(), b""
    for piece in pieces_of(data, sizes):
        assert not framer.is_complete
        body += framer.feed(piece)
    return framer, body


@given(CHUNKS, CUTS, st.sampled_from([b"", b"X-A: b\r\n"]), st.sampled_from([b"", b";a=b"]))
def test_a_chunked_body_ends_with_its_last_byte_whatever_the_pieces(
    chunks: list[bytes], sizes: list[int], trailer: bytes, extension: bytes
) -> None:
    framer, body = fed(chunked(chunks, trailer, extension), sizes)
    assert framer.is_complete
    assert body == b"".join(chunks)
    assert framer.status == 200 and framer.headers["content-type"] == "text/event-stream"


@given(st.binary(max_size=60), CUTS)
def test_a_body_with_a_length_ends_with_its_last_byte(content: bytes, sizes: list[int]) -> None:
    framer, body = fed(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content, sizes)
    assert framer.is_complete
    assert body == content


@given(st.binary(max_size=60), CUTS)
def test_a_body_without_either_ends_with_the_connection(content: bytes, sizes: list[int]) -> None:
    framer, body = fed(HEAD + b"\r\n" + content, sizes)
    assert not framer.is_complete
    assert framer.close() and framer.is_complete
    assert body == content


@given(st.binary(max_size=80), CUTS)
def test_any_bytes_are_read_or_refused(data: bytes, sizes: list[int]) -> None:
    framer = Framer()
    try:
        for piece in pieces_of(data, sizes):
            framer.feed(piece)
    except FramingError as error:
        assert str(error)


@given(CHUNKS, st.integers(0, 400))
def test_an_answer_that_breaks_off_is_not_complete(chunks: list[bytes], num_bytes: int) -> None:
    data = chunked(chunks)
    framer, _ = fed(data[: min(num_bytes, len(data) - 1)], [])
    assert not framer.close()


def test_an_interim_answer_is_passed_over() -> None:
    framer, body = fed(b"HTTP/1.1 100 Continue\r\n\r\n" + chunked([b"text"]), [])
    assert (framer.status, body, framer.is_complete) == (200, b"text", True)


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.1 200 OK", True),
    ],
)
def test_the_connection_is_kept_as_the_answer_says(head: bytes, keeps: bool) -> None:
    framer, _ = fed(head + b"\r\nContent-Length: 0\r\n\r\n", [])
    assert framer.is_complete
    assert framer.keeps_connection is keeps


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        chunked([b"a"]) + b"more",
        HEAD + b"Content-Length: 1\r\n\r\nab",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        HEAD + b"X: " + b"y" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        fed(data, [])
