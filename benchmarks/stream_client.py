"""A client that costs less than any server: it counts events in raw bytes and never looks inside them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, cast

EVENT = b"data: "
LAST_CHUNK = b"\r\n0\r\n\r\n"


def http_request(path: str, body: dict[str, Any] | None = None, request_id: str = "") -> bytes:
    """The bytes of one request: a POST with a JSON body, or a GET."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    if request_id:
        lines.append(f"X-Request-Id: {request_id}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


class StreamConnection(asyncio.Protocol):
    """Asks for one stream after the other on one connection, and counts their events.

    Args:
        request: bytes of the request.
        is_repeated: ask again when a stream has ended.

    Attributes:
        num_events: received so far, end marks included.
        num_streams: complete so far.
        error: the beginning of an answer that was not a stream.
    """

    def __init__(self, request: bytes, *, is_repeated: bool = True) -> None:
        self._request = request
        self._is_repeated = is_repeated
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self.num_events = 0
        self.num_streams = 0
        self.num_bytes = 0
        self.error = b""
        self.has_begun = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for the first stream."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Counts."""
        if not self.has_begun.is_set():
            if not data.startswith(b"HTTP/1.1 200"):
                self.error = data[:500]
            self.has_begun.set()
        self.num_bytes += len(data)
        window = self._tail + data
        self.num_events += window.count(EVENT)
        self._tail = window[-(len(EVENT) - 1) :]
        if data.endswith(LAST_CHUNK):
            self._tail = b""
            self.num_streams += 1
            if self._is_repeated and self._transport is not None:
                self._transport.write(self._request)

    def cut(self) -> float:
        """Closes the connection at once; returns the monotonic time."""
        assert self._transport is not None
        now_s = time.monotonic()
        self._transport.abort()
        return now_s


async def open_streams(port: int, requests: list[bytes]) -> list[StreamConnection]:
    """One connection per request, all begun.

    Raises:
        RuntimeError: the server refused one; the message has its answer.
    """
    loop = asyncio.get_running_loop()
    connections = []
    for request in requests:

        def make(request: bytes = request) -> StreamConnection:
            return StreamConnection(request)

        _, connection = await loop.create_connection(make, "127.0.0.1", port)
        connections.append(connection)
    await asyncio.gather(*(connection.has_begun.wait() for connection in connections))
    for connection in connections:
        if connection.error:
            raise RuntimeError(f"the server refused: {connection.error.decode(errors='replace')}")
    return connections


async def get(port: int, path: str) -> tuple[bytes, float]:
    """Body of a GET, and the seconds from the request to the last byte, the connection not counted."""
    return await exchange(port, http_request(path))


async def exchange(port: int, request: bytes) -> tuple[bytes, float]:
    """Body of one answer with a Content-Length, and the seconds that it took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        start_s = time.monotonic()
        writer.write(request)
        body = await read_answer(reader)
        return body, time.monotonic() - start_s
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Body of the next answer on a connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))


async def count_for(seconds: float, read: Callable[[], int]) -> float:
    """How fast a counter grows, per second."""
    start, start_s = read(), time.monotonic()
    await asyncio.sleep(seconds)
    return (read() - start) / (time.monotonic() - start_s)
