"""The router's transport alone, for benchmarks/router.py: each request goes to the next engine, with no policy at all.

    python -m benchmarks.router_plain PORT... [--core 1]

What the router proper costs beyond this is the price of its policies, its health and its continuation.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys

import uvloop

from qanat.router.http.exchange import Downstream
from qanat.router.http.front import Front
from qanat.router.http.upstream import Upstream
from qanat.router.model import Call, Endpoint


async def main(ports: list[int]) -> None:
    """Serves until it is stopped."""
    upstream = Upstream()
    endpoints = itertools.cycle([Endpoint(f"engine-{port}", "127.0.0.1", port) for port in ports])

    async def relay(call: Call, downstream: Downstream) -> None:
        request = upstream.request(next(endpoints), call.method, call.target, call.headers, call.body)
        async with request as answer:
            downstream.start(answer.status, answer.headers)
            await answer.pump(downstream.write, downstream)
            downstream.end()

    front = Front(relay)
    sys.stdout.write(f"{await front.listen('127.0.0.1', 0)}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--core", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    uvloop.run(main(arguments.ports))
