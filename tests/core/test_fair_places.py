"""Places given in turns: no owner's crowd stands before others, nothing is lost to those who leave."""

from __future__ import annotations

import asyncio
import random

import pytest

from qanat.core.errors import QueueFullError
from qanat.core.fair_places import FairPlaces

pytestmark = pytest.mark.asyncio


class Work:
    """Pieces of work that last until they are told to end."""

    def __init__(self, places: FairPlaces) -> None:
        self.places = places
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def start(self, name: str, size: int = 1) -> asyncio.Task[None]:
        """Begins a piece; its owner is the first letter of its name."""
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._run(name, size))

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await settled()

    async def _run(self, name: str, size: int) -> None:
        async with self.places.place(name[0], size):
            self.begun.append(name)
            await self.ends[name].wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_owners_take_turns_and_one_owner_is_served_in_order() -> None:
    work = Work(FairPlaces(1))
    names = ["a0", "a1", "a2", "a3", "b0", "b1", "c0"]
    tasks = [work.start(name) for name in names]
    await settled()
    for _ in names:
        await work.end(work.begun[-1])
    assert work.begun == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    await asyncio.gather(*tasks)


async def test_one_owner_leaves_places_to_others() -> None:
    work = Work(FairPlaces(3, max_per_owner=2))
    tasks = [work.start(f"a{i}") for i in range(4)]
    await settled()
    assert work.begun == ["a0", "a1"]
    tasks.append(work.start("b0"))
    await settled()
    assert work.begun[2:] == ["b0"]
    await work.end("b0")  # the free place is not for a third of the same owner
    assert work.places.num_waiting("a") == 2
    await work.end("a0")
    assert work.begun[3:] == ["a2"]
    for name in ("a1", "a2", "a3"):
        await work.end(name)
    await asyncio.gather(*tasks)


async def test_what_one_owner_has_waiting_is_bounded() -> None:
    work = Work(FairPlaces(1, max_waiting_size=10, what="forms"))
    tasks = [work.start("a0"), work.start("a1", 100), work.start("b0", 6), work.start("b1", 4)]
    await settled()
    for name in ("a2", "b2"):
        with pytest.raises(QueueFullError, match="Too many forms") as refusal:
            await work.start(name)
        assert refusal.value.status == 429 and refusal.value.retry_after_s == 1
    for name in ("a0", "a1", "b0", "b1"):
        await work.end(name)
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("seed", range(20))
async def test_no_place_is_lost_whoever_leaves_when(seed: int) -> None:
    draw = random.Random(seed)
    places = FairPlaces(2, max_per_owner=draw.choice([1, 2]))
    num_inside = 0

    async def visit(owner: str) -> None:
        nonlocal num_inside
        async with places.place(owner):
            num_inside += 1
            try:
                assert num_inside <= 2
                for _ in range(draw.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                num_inside -= 1

    tasks: list[asyncio.Task[None]] = []
    for _ in range(200):
        tasks.append(asyncio.create_task(visit(draw.choice("abc"))))
        if draw.random() < 0.5:
            await asyncio.sleep(0)
        if draw.random() < 0.4:
            draw.choice(tasks).cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
    for owner in "abc":
        assert places.num_waiting(owner) == 0
    async with asyncio.timeout(60), places.place("a"), places.place("b"):
        pass
