"""Stub engines for benchmarks/router.py, several in one process: they cost next to nothing and compute nothing.

    python -m benchmarks.router_engine [--engines 4] [--tokens 64] [--period-ms 10] [--core 0]

Prints the ports in one line. A completion with `"stream": true` is answered by one event for each token, all streams
of an engine at once every period, as an engine's steps do; any other by one JSON object. Every event carries the
time at which it was sent. GET /aborts gives the times at which streams were left before their end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time

import httptools
import msgspec
import uvloop

MODEL = "stub"
_JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_COMPLETION = (
    b'{"id":"chatcmpl-0","object":"chat.completion","created":0,"model":"stub","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"%b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":'
    b'64,"total_tokens":73},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,'
    b'"remote_engine_id":"e","remote_block_ids":[1],"remote_host":"h","remote_port":1}}'
) % (b"word " * 64)
_EVENT = (
    b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":0,"model":"stub","sent_ns":%d,'
    b'"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
)
_LAST = (
    b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":0,"model":"stub","choices":[{"index":0,'
    b'"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_MODELS = b'{"object":"list","data":[{"id":"stub","object":"model","max_model_len":32768}]}'


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Engine:
    """What the connections of one port share: the streams that run, and the times at which clients left them."""

    def __init__(self, num_tokens: int, period_s: float, aborts_ns: list[int]) -> None:
        self.aborts_ns = aborts_ns
        self.num_tokens = num_tokens
        self.period_s = period_s
        self._num_streams = 0
        self.streams: dict[asyncio.Transport, int] = {}

    def next_length(self) -> int:
        """Tokens of the next stream: half of the usual number to one and a half, so that streams do not end in step."""
        self._num_streams += 1
        return self.num_tokens // 2 + self._num_streams * 37 % (self.num_tokens + 1)

    async def step(self, delay_s: float) -> None:
        """Gives every stream a token each period, for ever."""
        await asyncio.sleep(delay_s)
        due_s = time.monotonic()
        end = chunk(_LAST) + b"0\r\n\r\n"
        while True:
            event = chunk(_EVENT % time.monotonic_ns())
            for transport, num_left in list(self.streams.items()):
                if num_left:
                    self.streams[transport] = num_left - 1
                    transport.write(event)
                else:
                    del self.streams[transport]
                    transport.write(end)
            due_s = max(due_s + self.period_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())


class EngineConnection(asyncio.Protocol):
    """Answers at once, or joins the streams of its engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._engine.streams.pop(self._transport, None) is not None:
            self._engine.aborts_ns.append(time.monotonic_ns())

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """The target."""
        self._url = url

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._body += data

    def on_message_complete(self) -> None:
        """A request is whole."""
        body, self._body = self._body, b""
        if b'"stream":true' in body or b'"stream": true' in body:
            self._transport.write(_STREAM_HEAD)
            self._engine.streams[self._transport] = self._engine.next_length()
        else:
            answer = _COMPLETION if body else _MODELS
            if self._url == b"/aborts":
                answer = msgspec.json.encode(self._engine.aborts_ns)
            self._transport.write(_JSON_HEAD % (len(answer), answer))


async def main(options: argparse.Namespace) -> None:
    """Serves until it is stopped."""
    loop = asyncio.get_running_loop()
    ports: list[int] = []
    steps: list[asyncio.Task[None]] = []
    period_s = options.period_ms / 1e3
    aborts_ns: list[int] = []
    for number in range(options.engines):
        engine = Engine(options.tokens, period_s, aborts_ns)
        server = await loop.create_server(lambda e=engine: EngineConnection(e), "127.0.0.1", 0, backlog=2048)
        ports.append(server.sockets[0].getsockname()[1])
        steps.append(asyncio.create_task(engine.step(period_s * number / options.engines)))
    sys.stdout.write(" ".join(map(str, ports)) + "\n")
    sys.stdout.flush()
    await asyncio.gather(*steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64, help="of a stream, on average")
    parser.add_argument("--period-ms", type=float, default=10.0)
    parser.add_argument("--core", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    uvloop.run(main(arguments))
