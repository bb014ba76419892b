"""Clients for benchmarks/router.py: as many requests as get answered, or so many each second.

    python -m benchmarks.router_load PORT... --kind json|stream [--connections 64] [--rate 500] [--seconds 3]

Prints one JSON object: what was done in the measured time, and how long answers (json) or each token (stream, from
the engine's write to here) took. With several ports the connections are spread over them. With --aborts further
clients leave their streams, one after the other, and the engine is asked when it saw that.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools
import msgspec
import uvloop

from benchmarks.router_engine import MODEL

WARM_UP_S = 0.5
TURN_S = 0.001
_SENT = re.compile(rb'"sent_ns":(\d+)')


def request_bytes(is_stream: bool) -> bytes:
    """A chat completion of about 400 bytes, as a client library sends it."""
    body = msgspec.json.encode(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Tell me of water that runs under the ground. " * 4}],
            "max_tokens": 64,
            "stream": is_stream,
        }
    )
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\nAccept: application/json\r\n"
        b"Content-Type: application/json\r\nUser-Agent: load/1\r\nAuthorization: Bearer key-of-a-client\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    return head + body


class Load:
    """What all connections count together, from `begin_s` on."""

    def __init__(self, is_stream: bool, measures_tokens: bool) -> None:
        self.is_stream = is_stream
        self.measures_tokens = measures_tokens
        self.request = request_bytes(is_stream)
        self.begin_s = time.monotonic() + WARM_UP_S
        self.num_requests = 0
        self.num_tokens = 0
        self.num_total_requests = 0
        self.num_total_tokens = 0
        self.num_errors = 0
        self.delays_ns: list[int] = []

    def is_measured(self) -> bool:
        """The warm-up is over."""
        return time.monotonic() >= self.begin_s


class Client(asyncio.Protocol):
    """One connection; `is_free` is called with it when an answer is complete."""

    def __init__(self, load: Load, is_free: Callable[[Client], None]) -> None:
        self._load = load
        self._is_free = is_free
        self._parser = httptools.HttpResponseParser(self)
        self._asked_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._load.num_errors += 1

    def ask(self, due_ns: int) -> None:
        """Sends the request that was due then."""
        self._asked_ns = due_ns
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        load = self._load
        if load.is_stream:
            num_tokens = data.count(b'"word "')
            load.num_total_tokens += num_tokens
            if load.is_measured():
                load.num_tokens += num_tokens
                if load.measures_tokens:
                    now_ns = time.monotonic_ns()
                    load.delays_ns += [now_ns - int(sent) for sent in _SENT.findall(data)]
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        load = self._load
        load.num_total_requests += 1
        if self._parser.get_status_code() != 200:
            load.num_errors += 1
        if load.is_measured():
            load.num_requests += 1
            if not load.is_stream:
                load.delays_ns.append(time.monotonic_ns() - self._asked_ns)
        self._is_free(self)


async def drive(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the load and gives its figures."""
    loop = asyncio.get_running_loop()
    load = Load(options.kind == "stream", options.rate > 0 or options.delays)
    free: deque[Client] = deque()
    due: deque[int] = deque()

    def is_free(client: Client) -> None:
        if not options.rate:
            client.ask(time.monotonic_ns())
        elif due:
            client.ask(due.popleft())
        else:
            free.append(client)

    for number in range(options.connections):
        port = options.ports[number % len(options.ports)]
        _, client = await loop.create_connection(lambda: Client(load, is_free), "127.0.0.1", port)
        free.append(client)
    load.begin_s = time.monotonic() + WARM_UP_S
    end_s = load.begin_s + options.seconds
    aborting = None
    if options.aborts:
        aborting = asyncio.create_task(_abort_streams(options.aborts, options.ports[0], options.engine_port))
    if options.rate:
        await _offer(options.rate, end_s, free, due)
    else:
        for client in free:
            client.ask(time.monotonic_ns())
        await asyncio.sleep(end_s - time.monotonic())
    seconds = time.monotonic() - load.begin_s
    slowest_abort_ms = max(await aborting) / 1e6 if aborting else 0.0
    delays_ms = sorted(delay / 1e6 for delay in load.delays_ns) or [0.0]
    return {
        "requests_per_s": load.num_requests / seconds,
        "tokens_per_s": load.num_tokens / seconds,
        "num_total_requests": load.num_total_requests,
        "num_total_tokens": load.num_total_tokens,
        "num_errors": load.num_errors,
        "p50_ms": delays_ms[len(delays_ms) // 2],
        "p99_ms": delays_ms[int(len(delays_ms) * 0.99)],
        "slowest_abort_ms": slowest_abort_ms,
    }


async def _abort_streams(num_aborts: int, port: int, engine_port: int) -> list[int]:
    """Nanoseconds from a client's leaving to the engine's noticing, of so many clients."""
    delays_ns: list[int] = []
    engine_reader, engine_writer = await asyncio.open_connection("127.0.0.1", engine_port)
    while len(delays_ns) < num_aborts:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes(is_stream=True))
        await reader.readuntil(b'"word "')
        left_ns = time.monotonic_ns()
        writer.close()
        while True:
            engine_writer.write(b"GET /aborts HTTP/1.1\r\nHost: engine\r\n\r\n")
            head = await engine_reader.readuntil(b"\r\n\r\n")
            aborts_ns = msgspec.json.decode(await engine_reader.readexactly(int(head.split()[-1])))
            if aborts_ns and aborts_ns[-1] >= left_ns:
                break
            await asyncio.sleep(TURN_S)
        delays_ns.append(aborts_ns[-1] - left_ns)
    engine_writer.close()
    return delays_ns


async def _offer(rate: float, end_s: float, free: deque[Client], due: deque[int]) -> None:
    """Requests at even distances, rounded to a turn of TURN_S, whether or not earlier ones are answered.

    It sleeps between turns: a client that spins would keep the engines, which share its core, from running.
    """
    next_s = time.monotonic()
    while (now_s := time.monotonic()) < end_s:
        now_ns = time.monotonic_ns()
        while next_s <= now_s:
            if free:
                free.popleft().ask(now_ns)
            else:
                due.append(now_ns)
            next_s += 1 / rate
        await asyncio.sleep(TURN_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--kind", choices=["json", "stream"], default="json")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="json: requests each second; 0: as many as go"
    )
    parser.add_argument("--delays", action="store_true", help="stream: measures each token's way")
    parser.add_argument("--aborts", type=int, default=0, help="clients that leave their streams meanwhile")
    parser.add_argument("--engine-port", type=int, help="the engine that knows when they left")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--core", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    sys.stdout.write(msgspec.json.encode(uvloop.run(drive(arguments))).decode() + "\n")
