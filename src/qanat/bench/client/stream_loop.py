"""The client's event loop: it keeps what arrives on plain connections while it waits, without a turn for each piece.

For each piece that arrives asyncio makes a handle, enters a context and passes over its queues, which costs more than
the system's own call. Here the wait itself reads: pieces that need no more than to be kept do not end it. Whatever else
happens is a callback of the loop, as always.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_PIECE_BYTES = 64 * 2**10
MAX_EVENTS = 512
"""Taken from the system in one call."""


@dataclass(frozen=True)
class Stream:
    """A connection that is read by the wait.

    Attributes:
        transport: its own; writes, and ends.
        keep: takes a piece outside of the loop's turns, and does no more than to keep it; True if `look` is wanted.
        look: called in a turn of the loop.
    """

    transport: asyncio.Transport
    keep: Callable[[bytes], bool]
    look: Callable[[], None]


class StreamLoop(asyncio.SelectorEventLoop):
    """An event loop with streams beside the usual transports; needs a system with epoll."""

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}
        self._selector_of_all = _ReadingSelector(self._streams, self.call_soon, self._hand_back)
        super().__init__(self._selector_of_all)

    def watch(self, stream: Stream) -> None:
        """Reads a stream whose transport has a socket and no TLS, until it ends."""
        stream.transport.pause_reading()
        fd = _fd_of(stream.transport)
        self._streams[fd] = stream
        self._selector_of_all.watched.register(fd, select.EPOLLIN)

    def unwatch(self, transport: asyncio.BaseTransport) -> None:
        """Forgets a stream, before its transport closes the socket; does nothing where it is not watched."""
        fd = _fd_of(transport)
        if self._streams.pop(fd, None) is not None:
            self._selector_of_all.watched.unregister(fd)

    def _hand_back(self, stream: Stream) -> None:
        """Leaves a stream that ends, or fails, to its transport, which tells its protocol."""
        self.unwatch(stream.transport)
        stream.transport.resume_reading()


class _ReadingSelector(selectors.EpollSelector):
    """Waits for the streams and for whatever else the loop waits for, and reads the streams.

    Args:
        streams: by the number of their file.
        call_soon: of the loop.
        hand_back: called with a stream that is no longer to be read here.
    """

    def __init__(
        self,
        streams: Mapping[int, Stream],
        call_soon: Callable[..., object],
        hand_back: Callable[[Stream], None],
    ) -> None:
        super().__init__()
        self._streams = streams
        self._call_soon = call_soon
        self._hand_back = hand_back
        self.watched = select.epoll()
        self.watched.register(self.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """Closes both files."""
        self.watched.close()
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready of the loop's own; waits until there is some, a stream wants a turn, or the time is over."""
        deadline_s = time.monotonic() + timeout if timeout is not None else None
        while not self._read(timeout):
            if deadline_s is not None:
                timeout = deadline_s - time.monotonic()
                if timeout <= 0:
                    return []
        return super().select(0)

    def _read(self, timeout: float | None) -> bool:
        """Reads once from each stream that has something; True if the loop has to turn."""
        needs_turn = False
        for fd, mask in self.watched.poll(timeout, MAX_EVENTS):
            stream = self._streams.get(fd)
            if stream is None:
                needs_turn = True
                continue
            data = _read_piece(fd) if mask == select.EPOLLIN else b""
            if not data:
                self._call_soon(self._hand_back, stream)
                needs_turn = True
            elif stream.keep(data):
                self._call_soon(stream.look)
                needs_turn = True
        return needs_turn


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop for a client: a `StreamLoop`, or where the system has no epoll the usual one."""
    return StreamLoop() if hasattr(select, "epoll") else asyncio.new_event_loop()


def _read_piece(fd: int) -> bytes:
    """What a socket has; empty at its end or where it failed, of which its transport will hear too."""
    try:
        return os.read(fd, MAX_PIECE_BYTES)
    except OSError:
        return b""


def _fd_of(transport: asyncio.BaseTransport) -> int:
    return int(transport.get_extra_info("socket").fileno())
