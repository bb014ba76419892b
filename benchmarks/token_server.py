"""A server for benchmarks/bench_client.py that costs as little as one can: chat streams of constant chunks.

    python -m benchmarks.token_server [--core 0] [--rate 80000]

Prints its port. In each turn of the event loop every stream gets one chunk with one token, as a server's step makes it;
a stream whose client does not keep up is left out until it does. With a rate, turns wait so that no more tokens are
sent in a second; the process does not sleep meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import cast

import uvloop

CHUNK = {
    "id": "chatcmpl-" + "0" * 32,
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "constant",
    "choices": [{"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}],
}
MAX_BEHIND_S = 0.002
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
MODELS = b'{"data":[{"id":"constant"}]}'


def framed(data: bytes) -> bytes:
    """One chunk of the body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = framed(b"data: " + json.dumps(CHUNK).encode() + b"\n\n")


class Streams:
    """All streams that have tokens left."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float) -> None:
        self._loop = loop
        self._token_s = 1 / rate if rate else 0.0
        self._next_s = 0.0
        self._left: dict[TokenConnection, int] = {}

    def add(self, connection: TokenConnection, num_tokens: int) -> None:
        """Begins a stream."""
        if not self._left:
            self._loop.call_soon(self._step)
        self._left[connection] = num_tokens

    def remove(self, connection: TokenConnection) -> None:
        """Ends a stream whose client has gone."""
        self._left.pop(connection, None)

    def _step(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._loop.call_soon(self._step)
            return
        # What is behind is not made up for: bursts would come in one piece.
        self._next_s = max(self._next_s, now_s - MAX_BEHIND_S) + self._token_s * len(self._left)
        ended = []
        for connection, left in self._left.items():
            if not connection.is_full:
                connection.transport.write(TOKEN)
                self._left[connection] = left - 1
                if left == 1:
                    ended.append(connection)
        for connection in ended:
            del self._left[connection]
            connection.end()
        if self._left:
            self._loop.call_soon(self._step)


class TokenConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._held = b""
        self._num_tokens = 0
        self.is_full = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends its stream."""
        self._streams.remove(self)

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self.is_full = True

    def resume_writing(self) -> None:
        """It does again."""
        self.is_full = False

    def data_received(self, data: bytes) -> None:
        """Answers one request after the other."""
        self._held += data
        head, mark, body = self._held.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if not mark or len(body) < length:
            return
        self._held = b""
        path = head.split(b" ", 2)[1]
        if path == b"/v1/models":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(MODELS) + MODELS)
        elif path != b"/v1/chat/completions":
            self.transport.write(NOT_FOUND)
        else:
            self._num_tokens = json.loads(body)["max_completion_tokens"]
            self.transport.write(HEAD)
            self._streams.add(self, self._num_tokens)

    def end(self) -> None:
        """Writes the end of the stream."""
        counts = {
            "prompt_tokens": 8,
            "completion_tokens": self._num_tokens,
            "total_tokens": 8 + self._num_tokens,
        }
        last = framed(b"data: " + json.dumps({**CHUNK, "choices": [], "usage": counts}).encode() + b"\n\n")
        self.transport.write(last + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def serve(rate: float) -> None:
    """Serves until the process is ended."""
    loop = asyncio.get_running_loop()
    streams = Streams(loop, rate)
    server = await loop.create_server(lambda: TokenConnection(streams), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> int:
    """Runs the process."""
    parser = argparse.ArgumentParser(description="A server for benchmarks/bench_client.py.")
    parser.add_argument("--core", type=int, help="the one core to run on")
    parser.add_argument("--rate", type=float, default=0.0, help="tokens a second at most")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.rate))
    return 0


if __name__ == "__main__":
    sys.exit(main())
