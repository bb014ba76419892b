"""Where an HTTP/1.1 answer ends and what its body is, whatever pieces it came in (RFC 9112, sections 6 and 7)."""

from __future__ import annotations

import enum

MAX_HEAD_BYTES = 64 * 2**10
MAX_LINE_BYTES = 4096
_NO_BODY = (204, 304)


class FramingError(Exception):
    """The bytes are no answer of HTTP/1.1."""


class _State(enum.Enum):
    HEAD = enum.auto()
    LENGTH = enum.auto()
    UNTIL_CLOSE = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK = enum.auto()
    CHUNK_END = enum.auto()
    TRAILERS = enum.auto()
    COMPLETE = enum.auto()


class Framer:
    """Takes an answer's bytes, in order.

    Attributes:
        status: HTTP status; 0 before the head is there.
        headers: values by lower-case name.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._state = _State.HEAD
        self._held = b""  # a head or a line that is not complete
        self._left = 0  # bytes to come of the body or chunk

    @property
    def is_complete(self) -> bool:
        """True when the last byte is there."""
        return self._state is _State.COMPLETE

    @property
    def is_chunked(self) -> bool:
        """True inside of a chunked body, whose end shows in its last bytes."""
        return self._state in (_State.CHUNK_SIZE, _State.CHUNK, _State.CHUNK_END, _State.TRAILERS)

    @property
    def is_event_stream(self) -> bool:
        """True for an answer of text/event-stream."""
        return "event-stream" in self.headers.get("content-type", "").lower()

    @property
    def keeps_connection(self) -> bool:
        """True if another request may follow on this connection."""
        return "close" not in self.headers.get("connection", "").lower()

    def close(self) -> bool:
        """Tells that the connection has ended; True if the answer is complete by that."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.COMPLETE
        return self.is_complete

    def feed(self, data: bytes) -> bytes:
        """Takes the next piece; gives what it holds of the body.

        Raises:
            FramingError: it is not framed as HTTP says, or something follows the end.
        """
        if self._state is _State.HEAD:
            data = self._read_head(data)
            if self._state is _State.HEAD:
                return b""
        if self._state is _State.UNTIL_CLOSE:
            return data
        if self._state is _State.LENGTH:
            if len(data) > self._left:
                raise FramingError("bytes follow the end of the answer")
            self._left -= len(data)
            if not self._left:
                self._state = _State.COMPLETE
            return data
        return self._read_chunks(data)

    def _read_head(self, data: bytes) -> bytes:
        """Reads heads, those of interim answers too; gives what follows."""
        self._held += data
        while self._state is _State.HEAD:
            head, mark, rest = self._held.partition(b"\r\n\r\n")
            if not mark or len(head) > MAX_HEAD_BYTES:
                if len(self._held) > MAX_HEAD_BYTES:
                    raise FramingError("the head has no end")
                if not b"HTTP/1.".startswith(self._held[:7]) and not self._held.startswith(b"HTTP/1."):
                    raise FramingError(f"it answers {self._held[:40]!r}")
                return b""
            self._held = rest
            self._take_head(head.decode("latin-1"))
        rest, self._held = self._held, b""
        return rest

    def _take_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        words = first.split(" ", 2)
        if (
            not first.startswith("HTTP/1.")
            or len(words) < 2
            or not (words[1].isdecimal() and words[1].isascii())
        ):
            raise FramingError(f"it answers {first[:40]!r}")
        status = int(words[1])
        if status < 200:
            return
        pairs = (line.partition(":") for line in lines)
        self.status, self.headers = status, {name.strip().lower(): value.strip() for name, _, value in pairs}
        if first.startswith("HTTP/1.0"):
            self.headers.setdefault("connection", "close")
        length = self.headers.get("content-length")
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._state = _State.CHUNK_SIZE
        elif status in _NO_BODY or length == "0":
            self._state = _State.COMPLETE
        elif length is None:
            self._state = _State.UNTIL_CLOSE
        elif length.isascii() and length.isdecimal():
            self._state, self._left = _State.LENGTH, int(length)
        else:
            raise FramingError(f"Content-Length is {length[:40]!r}")

    def _read_chunks(self, data: bytes) -> bytes:
        found: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if self._state is _State.CHUNK:
                taken = min(self._left, end - at)
                found.append(data[at : at + taken])
                at += taken
                self._left -= taken
                if not self._left:
                    self._state = _State.CHUNK_END
                continue
            if self._state is _State.COMPLETE:
                raise FramingError("bytes follow the end of the answer")
            stop = data.find(b"\n", at)
            line = self._held + data[at : stop if stop >= 0 else end]
            if len(line) > MAX_LINE_BYTES:
                raise FramingError("a line between chunks has no end")
            if stop < 0:
                self._held = line
                break
            self._held = b""
            at = stop + 1
            self._take_line(line.rstrip(b"\r"))
        return found[0] if len(found) == 1 else b"".join(found)

    def _take_line(self, line: bytes) -> None:
        """A line outside of the chunks' data: a size, the end of a chunk, or a trailer."""
        if self._state is _State.CHUNK_END:
            if line:
                raise FramingError(f"a chunk goes on with {line[:20]!r} behind its announced end")
            self._state = _State.CHUNK_SIZE
        elif self._state is _State.TRAILERS:
            if not line:
                self._state = _State.COMPLETE
        else:
            self._left = chunk_size(line.split(b";", 1)[0].strip())
            self._state = _State.CHUNK if self._left else _State.TRAILERS


def chunk_size(text: bytes) -> int:
    """Reads the size of a chunk.

    Raises:
        FramingError: it is none.
    """
    try:
        if text.isalnum():
            return int(text, 16)
    except ValueError:
        pass
    raise FramingError(f"a chunk has the size {text[:20]!r}")
