"""One connection: writes a request, stamps and keeps what comes in, and finds the answer's end without reading it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

from qanat.bench.client.framing import Framer, FramingError
from qanat.bench.client.recording import MAX_HELD_BYTES, Recording, Store

LAST_BYTES = b"\r\n\r\n"
"""A chunked body ends with them; a piece that does not, and is as long, need not be looked at now."""

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
        self._transport: asyncio.Transport | None = None
        self._recording: Recording | None = None
        self._framer = Framer()
        self._num_framed = 0  # of the pieces in memory
        self._looks_at_all = True
        self.is_closed = False
        self.num_requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Is open now."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self, recording: Recording, request: bytes) -> None:
        """Writes a request; its answer goes into the recording."""
        assert self._transport is not None and self._recording is None
        self._recording = recording
        self._framer = Framer()
        self._num_framed = 0
        self._looks_at_all = True
        self.num_requests += 1
        recording.num_tries += 1
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Stamps and keeps; looks closer only where the answer may have ended."""
        now_ns = time.monotonic_ns()
        recording = self._recording
        if recording is None:  # nothing was asked
            self.abort()
            return
        recording.times_ns.append(now_ns)
        recording.pieces.append(data)
        recording.num_held_bytes += len(data)
        if self._looks_at_all or data[-4:] == LAST_BYTES or len(data) < len(LAST_BYTES):
            self._look(recording, now_ns)
        elif recording.num_held_bytes > MAX_HELD_BYTES:
            self._look(recording, now_ns)
            if not recording.end_ns:
                self._store.spill(recording)
                self._num_framed = 0

    def connection_lost(self, error: Exception | None) -> None:
        """Ends what is under way."""
        self.is_closed = True
        recording = self._recording
        if recording is None:
            return
        now_ns = time.monotonic_ns()
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
            self._fail(recording, kind, message, time.monotonic_ns())

    def abort(self) -> None:
        """Closes the connection at once."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _frame(self, recording: Recording) -> None:
        for piece in recording.pieces[self._num_framed :]:
            self._framer.feed(piece)
        self._num_framed = len(recording.pieces)

    def _look(self, recording: Recording, now_ns: int) -> None:
        try:
            self._frame(recording)
        except FramingError as error:
            self._fail(recording, "no_http", str(error), now_ns)
            return
        self._looks_at_all = not self._framer.is_chunked
        if self._framer.is_complete:
            self._end(recording, now_ns)

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
