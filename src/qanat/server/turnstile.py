"""Spreads the beginnings of requests over turns of the event loop, so that a crowd does not hold up those who run."""

from __future__ import annotations

import asyncio
from collections import deque

MAX_PER_TURN = 8
"""Requests that may begin in one turn. Reading and checking one takes some tenths of a millisecond."""


class Turnstile:
    """Lets so many through in each turn of the event loop, in the order in which they came.

    Args:
        num_per_turn: how many.
    """

    def __init__(self, num_per_turn: int = MAX_PER_TURN) -> None:
        self._num_per_turn = num_per_turn
        self._num_left = num_per_turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Returns at once, or in the turn in which it is the caller's."""
        loop = asyncio.get_running_loop()
        if self._num_left == self._num_per_turn:
            loop.call_soon(self._next_turn)
        if self._num_left > 0:
            self._num_left -= 1
            return
        place = loop.create_future()
        self._waiting.append(place)
        await place

    def _next_turn(self) -> None:
        self._num_left = self._num_per_turn
        while self._waiting and self._num_left > 0:
            place = self._waiting.popleft()
            if not place.done():  # else its caller has left
                place.set_result(None)
                self._num_left -= 1
        if self._num_left < self._num_per_turn:
            asyncio.get_running_loop().call_soon(self._next_turn)
