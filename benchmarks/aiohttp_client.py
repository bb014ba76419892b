"""The usual client of benchmarks, for benchmarks/bench_client.py: aiohttp, and JSON read while the stream runs.

    python benchmarks/aiohttp_client.py PORT REQUESTS CONCURRENCY TOKENS CORE

Prints tokens, seconds and seconds of processor time. It needs aiohttp, which Qanat does not; uvloop is used where it is
installed. Its settings are the good ones: no bound of connections, and a read buffer of 4 MiB.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any

aiohttp: Any = importlib.import_module("aiohttp")
PREFIX = b"data: "


async def one(session: Any, url: str, body: dict[str, Any]) -> int:
    """Sends a request; the number of its chunks with a token."""
    times: list[float] = []
    text = ""
    async with session.post(url, json=body) as response:
        async for line in response.content:
            if not line.startswith(PREFIX) or line.startswith(b"data: [DONE]"):
                continue
            chunk = json.loads(line.removeprefix(PREFIX))
            if chunk["choices"]:
                times.append(time.perf_counter())
                text += chunk["choices"][0]["delta"].get("content") or ""
    return len(times)


async def run(port: int, num_requests: int, concurrency: int, num_tokens: int) -> dict[str, float]:
    """Sends all requests, so many at once."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    body = {
        "model": "constant",
        "messages": [{"role": "user", "content": "of the one"}],
        "max_completion_tokens": num_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    gate = asyncio.Semaphore(concurrency)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=4 * 2**20) as session:

        async def guarded() -> int:
            async with gate:
                return await one(session, url, body)

        start_s, cpu_s = time.perf_counter(), time.process_time()
        counts = await asyncio.gather(*(guarded() for _ in range(num_requests)))
        return {
            "num_tokens": sum(counts),
            "wall_s": time.perf_counter() - start_s,
            "cpu_s": time.process_time() - cpu_s,
        }


def main() -> int:
    """Runs the process."""
    port, num_requests, concurrency, num_tokens, core = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    factory = None
    if importlib.util.find_spec("uvloop") is not None:
        factory = importlib.import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        result = runner.run(run(port, num_requests, concurrency, num_tokens))
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
