"""So many per turn of the event loop, first come, first served."""

from __future__ import annotations

import asyncio

import pytest

from qanat.server.turnstile import Turnstile

pytestmark = pytest.mark.asyncio


async def test_a_crowd_is_spread_over_turns_in_order() -> None:
    turnstile = Turnstile(3)
    entered: list[tuple[int, int]] = []
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async def visit(number: int) -> None:
        await turnstile.enter()
        entered.append((turn, number))

    counting = asyncio.create_task(count_turns())
    await asyncio.gather(*(visit(number) for number in range(20)))
    counting.cancel()
    assert [number for _, number in entered] == list(range(20))
    turns = [turn for turn, _ in entered]
    assert max(turns.count(turn) for turn in turns) == 3
    assert len(set(turns)) == 7


async def test_one_after_the_other_none_waits() -> None:
    turnstile = Turnstile(1)
    for _ in range(5):
        await asyncio.wait_for(turnstile.enter(), 10)
        await asyncio.sleep(0)


async def test_who_leaves_while_waiting_takes_no_place() -> None:
    turnstile = Turnstile(1)
    await turnstile.enter()
    visits = [asyncio.create_task(turnstile.enter()) for _ in range(4)]
    await asyncio.sleep(0)
    for visit in visits[:3]:
        visit.cancel()
    await asyncio.wait_for(visits[3], 10)
    await asyncio.wait_for(turnstile.enter(), 10)
