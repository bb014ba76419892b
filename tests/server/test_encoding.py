"""Threads for long texts: owners take turns, and a thread is free when its work is done, whoever has left."""

from __future__ import annotations

import asyncio
import threading

import pytest

from qanat.server.encoding import MAX_INLINE_CHARS, NUM_THREADS, PromptEncoder
from tests.support.scripted_engine import ScriptedTokenizer

pytestmark = pytest.mark.asyncio
LONG = MAX_INLINE_CHARS + 1
WAIT_S = 60


class HeldWork:
    """Work that lasts until it is let go; notes when it began."""

    def __init__(self, encoder: PromptEncoder) -> None:
        self.begun: list[str] = []
        self._encoder = encoder
        self._ends: dict[str, threading.Event] = {}

    def start(self, name: str) -> asyncio.Task[None]:
        """Its owner is the first letter of its name."""
        self._ends[name] = threading.Event()
        return asyncio.create_task(self._encoder.run(name[0], LONG, self._work, name))

    def end(self, name: str) -> None:
        self._ends[name].set()

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.begun) < count:
                await asyncio.sleep(0.001)

    def _work(self, name: str) -> None:
        self.begun.append(name)
        assert self._ends[name].wait(WAIT_S)


async def test_one_owners_crowd_of_long_texts_leaves_others_their_turn() -> None:
    encoder = PromptEncoder(ScriptedTokenizer(), 100)
    work = HeldWork(encoder)
    crowd = [work.start(f"a{i:02}") for i in range(20)]
    await work.until_begun(NUM_THREADS)
    other = work.start("b")
    await asyncio.sleep(0)  # it waits now
    for count in range(NUM_THREADS, NUM_THREADS + 2):
        work.end(work.begun[count - NUM_THREADS])
        await work.until_begun(count + 1)
    assert "b" in work.begun
    for task in crowd:
        work.end(f"a{crowd.index(task):02}")
    work.end("b")
    await asyncio.gather(other, *crowd)
    encoder.close()


async def test_a_thread_whose_caller_has_left_is_taken_until_its_work_is_done() -> None:
    encoder = PromptEncoder(ScriptedTokenizer(), 100)
    work = HeldWork(encoder)
    leaving = [work.start(f"a{i}") for i in range(NUM_THREADS)]
    await work.until_begun(NUM_THREADS)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    waiting = [work.start(name) for name in ("a8", "a9", "b0")]
    await asyncio.sleep(0)
    work.end("a0")
    await work.until_begun(NUM_THREADS + 1)
    for name in ("a1", "a8", "a9", "b0"):
        work.end(name)
    await asyncio.gather(*waiting)
    assert work.begun[NUM_THREADS:] == ["a8", "b0", "a9"]  # in turns: none was handed to a busy thread
    encoder.close()
