"""The events of a text/event-stream, whatever pieces it came in (WHATWG HTML, server-sent events)."""

from __future__ import annotations


class EventReader:
    """Takes a stream's bytes, in order; gives the data of each event with the piece that completes it."""

    def __init__(self) -> None:
        self._held = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece completes; events without data are left out."""
        held = self._held + piece
        if b"\r" in held:
            is_open = held.endswith(b"\r")  # the \n of \r\n may be on its way
            held = (held[:-1] if is_open else held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            held += b"\r" if is_open else b""
        *lines, self._held = held.split(b"\n")
        found = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found

    def close(self) -> list[bytes]:
        """What the stream ended with: an event whose empty line never came still counts."""
        return self.feed(b"\n\n" if not self._held.endswith(b"\r") else b"\n\n\n")

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
