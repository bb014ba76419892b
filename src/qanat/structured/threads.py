"""Threads that compile what the compile process has let through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

STACK_BYTES = 64 * 2**20
"""Address space, of which only what is touched costs memory."""
MAX_JOB_STACK_BYTES = 2 * 2**20
"""Stack on which a form is tried first, in a process of its own.

Libraries follow a form by recursion, which nothing but the end of the stack stops. What got along with so little there
cannot meet that end here, nor in the thread that follows outputs, whose stack is 8 MiB by default.
"""


def roomy_threads(num_threads: int, name: str, initializer: Callable[[], None]) -> ThreadPoolExecutor:
    """A pool whose threads have run already, each with a stack of `STACK_BYTES`.

    Args:
        num_threads: of the pool.
        name: threads' names begin with it.
        initializer: called in each.
    """
    threads = ThreadPoolExecutor(num_threads, name, initializer=initializer)
    all_there = threading.Barrier(num_threads)
    usual_bytes = threading.stack_size(STACK_BYTES)
    try:
        for _ in range(num_threads):
            threads.submit(all_there.wait)  # none takes a second one before all have begun
    finally:
        threading.stack_size(usual_bytes)
    return threads
