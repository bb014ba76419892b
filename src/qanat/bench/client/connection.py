"""One connection: writes a request, stamps and keeps what comes in, and finds the answer's end without reading it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import cast

from qanat.bench.client.framing import Framer, FramingError
from qanat.bench.client.recording import MAX_HELD_BYTES, Recording, Store
from qanat.bench.client.stream_loop import Stream, StreamLoop

LAST_BYTES = b"\r\n\r\n"
"""A chunked body ends with them; a piece that does not, and is as long, need not be looked at now."""
END_OF_EVENTS = b"\r\n0" + 2 * b"\r\n"
"""A stream of events in chunks that has this at the end of a piece is complete: as data it would be a line of an event
that is a mere 0. Reading after the run would see it: there all is framed."""

WhenOver = Callable[["Connection", Recording], None]


class Connection(asyncio.Protocol):
    """A kept connection with one request at a time.

    Args:
        store: keeps the bytes.
        when_over: called when the answer or a failure is complete; the connection is free then, or closed.
    """

    def __init__(self, store: Store, when_over: WhenOver) -> None:
        self._store = store
        self._when_over = when_over
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._recording: Recording | None = None
        self._framer = Framer()
        self._num_framed = 0  # of the pieces in memory
        self._looks_at_all = True
        self._is_event_stream = False
        self.is_closed = False
        self.num_requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Is open now."""
        self._transport = cast(asyncio.Transport, transport)

    def watch(self) -> None:
        """Has the loop read, where it does so itself; for a connection that is open, and not of TLS."""
        if isinstance(self._loop, StreamLoop):
            assert self._transport is not None
            self._loop.watch(Stream(self._transport, self.keep, self.look))

    def send(self, recording: Recording, request: bytes) -> None:
        """Writes a request; its answer goes into the recording."""
        assert self._transport is not None and self._recording is None
        self._recording = recording
        self._framer = Framer()
        self._num_framed = 0
        self._looks_at_all = True
        self._is_event_stream = False
        self.num_requests += 1
        recording.num_tries += 1
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Takes a piece from the transport."""
        if self.keep(data):
            self.look()

    def keep(self, data: bytes) -> bool:
        """Stamps and keeps a piece; True if it has to be looked at, as the answer may have ended."""
        now_ns = monotonic_ns()
        recording = self._recording
        if recording is None:
            return True
        recording.times_ns.append(now_ns)
        recording.pieces.append(data)
        recording.num_held_bytes += len(data)
        return (
            self._looks_at_all
            or data[-4:] == LAST_BYTES
            or len(data) < len(LAST_BYTES)
            or recording.num_held_bytes > MAX_HELD_BYTES
        )

    def look(self) -> None:
        """Finds out whether the answer has ended with the last piece, and makes room where it grows large."""
        recording = self._recording
        if recording is None:  # nothing was asked
            self.abort()
            return
        now_ns = recording.times_ns[-1]
        if self._is_event_stream and b"".join(recording.pieces[-2:]).endswith(END_OF_EVENTS):
            self._end(recording, now_ns)
            return
        try:
            self._frame(recording)
        except FramingError as error:
            self._fail(recording, "no_http", str(error), now_ns)
            return
        self._looks_at_all = not self._framer.is_chunked
        self._is_event_stream = self._framer.is_chunked and self._framer.is_event_stream
        if self._framer.is_complete:
            self._end(recording, now_ns)
        elif recording.num_held_bytes > MAX_HELD_BYTES:
            self._store.spill(recording)
            self._num_framed = 0

    def connection_lost(self, error: Exception | None) -> None:
        """Ends what is under way."""
        self.is_closed = True
        if isinstance(self._loop, StreamLoop) and self._transport is not None:
            self._loop.unwatch(self._transport)
        recording = self._recording
        if recording is None:
            return
        now_ns = monotonic_ns()
        try:
            if not recording.end_ns:
                self._frame(recording)
        except FramingError as caught:
            self._fail(recording, "no_http", str(caught), now_ns)
            return
        if self._framer.close():
            self._end(recording, now_ns)
        else:
            what = "was reset" if error is not None else "closed before the end of the answer"
            self._fail(recording, "cut", f"the connection {what}", now_ns)

    def fail(self, kind: str, message: str) -> None:
        """Gives up the request that is under way, and the connection."""
        recording = self._recording
        if recording is not None:
            self._fail(recording, kind, message, monotonic_ns())

    def abort(self) -> None:
        """Closes the connection at once."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _frame(self, recording: Recording) -> None:
        self._framer.feed(b"".join(recording.pieces[self._num_framed :]))
        self._num_framed = len(recording.pieces)

    def _end(self, recording: Recording, now_ns: int) -> None:
        recording.status = self._framer.status
        recording.end_ns = now_ns
        if not self._framer.keeps_connection:
            self.abort()
        self._recording = None
        self._when_over(self, recording)

    def _fail(self, recording: Recording, kind: str, message: str, now_ns: int) -> None:
        recording.status = self._framer.status
        recording.failure, recording.message, recording.end_ns = kind, message, now_ns
        self._recording = None
        self.abort()
        self._when_over(self, recording)
