"""A server process for measurements: ours over the stub engine, or the same HTTP stack streaming constant bytes.

    python -m benchmarks.stub_server qanat|constant [--period-ms 0] [--core 0]

Prints its port in one line. Beside the application's own paths, GET /bench answers what the process measured itself:
CPU seconds, tokens, the longest turn of the event loop since the last such request, and when aborts arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.stub_engine import WORD, StubClient, start_stub_engine
from qanat.config.engine_config import ServerOptions
from qanat.server.app import build_app
from qanat.server.garbage import spare_lasting_objects
from qanat.server.http import STREAM_END, send_chunk, send_json, start_stream, stream_chunk
from qanat.server.responses import ChatChunk, ChatChunkChoice, ChatDelta

HEARTBEAT_S = 0.005


class Heartbeat:
    """Measures how long the event loop kept anything from running, without the time in which others had the core."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Beats until it is cancelled."""
        while True:
            due_s, waited_s = time.monotonic() + HEARTBEAT_S, _waited_s()
            await asyncio.sleep(HEARTBEAT_S)
            late_s = time.monotonic() - due_s - (_waited_s() - waited_s)
            self.longest_s = max(self.longest_s, late_s)

    def read(self) -> float:
        """The longest delay since the last reading, in seconds."""
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s


def _waited_s() -> float:
    """Seconds that this process was ready to run and did not."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


class ConstantApp:
    """Streams the same bytes, one chunk in each turn of the event loop (or each period), as often as the body says."""

    def __init__(self, period_s: float) -> None:
        choice = ChatChunkChoice(0, ChatDelta(content=WORD))
        self._chunk = stream_chunk(ChatChunk("chatcmpl-" + "0" * 32, int(time.time()), "scripted", [choice]))
        self._period_s = period_s
        self.num_tokens = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        body = b""
        has_more = True
        while has_more:
            message = await receive()
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        if scope["path"] == "/json":
            await send_json(send, {"status": "ok"})
            return
        num_chunks = msgspec.json.decode(body)["max_tokens"]
        await start_stream(send)
        for _ in range(num_chunks):
            await send_chunk(send, self._chunk)
            self.num_tokens += 1
            await asyncio.sleep(self._period_s)
        await send_chunk(send, STREAM_END, is_last=True)


class Measured:
    """Wraps an application: answers /bench, passes everything else on."""

    def __init__(self, app: ASGIApp, counter: ConstantApp | StubClient, heartbeat: Heartbeat) -> None:
        self._app = app
        self._counter = counter
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] == "http" and scope["path"] == "/bench":
            await send_json(send, self._report())
        else:
            await self._app(scope, receive, send)

    def _report(self) -> dict[str, Any]:
        aborts = self._counter.abort_times_s if isinstance(self._counter, StubClient) else {}
        return {
            "cpu_s": time.process_time(),
            "num_tokens": self._counter.num_tokens,
            "longest_stall_s": self._heartbeat.read(),
            "abort_times_s": aborts,
        }


async def serve(kind: str, period_s: float) -> None:
    """Serves until SIGTERM, with the settings of `qanat serve`."""
    counter: ConstantApp | StubClient
    app: ASGIApp
    if kind == "qanat":
        engine, counter = start_stub_engine(period_s)
        app = build_app(engine, ServerOptions())
    else:
        app = counter = ConstantApp(period_s)
    spare_lasting_objects()  # as `qanat serve` does, for either application
    heartbeat = Heartbeat()
    beating = asyncio.create_task(heartbeat.run())
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        sock.listen(2048)
        sys.stdout.write(f"{sock.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            Measured(app, counter, heartbeat),
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
        )
        await uvicorn.Server(config).serve(sockets=[sock])
    beating.cancel()


def main() -> int:
    """Runs the process."""
    parser = argparse.ArgumentParser(description="A server process for benchmarks/server.py.")
    parser.add_argument("kind", choices=["qanat", "constant"])
    parser.add_argument("--period-ms", type=float, default=0.0, help="time between a stream's chunks")
    parser.add_argument("--core", type=int, help="the one core to run on")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.kind, options.period_ms / 1e3))
    return 0


if __name__ == "__main__":
    sys.exit(main())
