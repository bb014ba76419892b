"""Server-sent events, cut out of bytes as they come, with everything in them that is not as the format says."""

from __future__ import annotations

FIELDS = ("data", "event", "id", "retry")
MAX_SHOWN_CHARS = 60


class EventReader:
    """Collects events; bytes may be cut anywhere.

    Attributes:
        faults: what is no server-sent event, one sentence each, the first one of each kind.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._buffer = b""
        self._data: list[str] = []
        self._skip_newline = False

    def feed(self, piece: bytes) -> list[str]:
        """The data of the events that are complete with this piece."""
        self._buffer += piece
        events = []
        while (line := self._next_line()) is not None:
            if (event := self._line(line)) is not None:
                events.append(event)
        return events

    def finish(self) -> None:
        """Says that the stream is over; what is left is a fault."""
        if self._buffer or self._data:
            self._fault("ended inside of an event", self._buffer or self._data[0].encode())

    def _next_line(self) -> bytes | None:
        if self._skip_newline and self._buffer:
            self._buffer = self._buffer.removeprefix(b"\n")
            self._skip_newline = False
        ends = [place for mark in (b"\n", b"\r") if (place := self._buffer.find(mark)) >= 0]
        if not ends:
            return None
        end = min(ends)
        line, self._skip_newline = self._buffer[:end], self._buffer[end : end + 1] == b"\r"
        self._buffer = self._buffer[end + 1 :]
        return line

    def _line(self, line: bytes) -> str | None:
        if not line:
            event = "\n".join(self._data) if self._data else None
            self._data = []
            return event
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self._fault("is not UTF-8", line)
            text = line.decode(errors="replace")
        name, _, value = text.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif name and name not in FIELDS:
            self._fault("has no field of an event", line)
        return None

    def _fault(self, what: str, line: bytes) -> None:
        if not any(what in fault for fault in self.faults):
            self.faults.append(f"a line {what}: {line.decode(errors='replace')[:MAX_SHOWN_CHARS]!r}")
