"""Notices steps that take too long, says so once with the core's stacks, and notices when steps go on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

logger = logging.getLogger(__name__)

MAX_PERIOD_S = 1.0
"""How long a stall may go unlogged; /health needs no such look and turns at once."""


class StallWatch:
    """Measures how long the core has owed an answer.

    It owes one from a request's arrival to its own word that the request has ended: that the client has gone
    meanwhile settles nothing.

    Args:
        limit_s: a longer silence is a stall.
        clock: monotonic seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._owed: set[str] = set()
        self._last_word_s = clock()
        self._is_reported = False

    def expect(self, request_id: str) -> None:
        """A request goes to the core."""
        if not self._owed:
            self._last_word_s = self._clock()
        self._owed.add(request_id)

    def hear(self, ended_ids: Iterable[str]) -> None:
        """A step has ended, and these requests with it."""
        if self._is_reported:
            self._is_reported = False
            logger.warning("Steps go on again after %.1f s.", self.age_s)
        self._last_word_s = self._clock()
        self._owed.difference_update(ended_ids)

    def forget(self) -> None:
        """The core is gone; nothing is owed any more."""
        self._owed.clear()
        self._is_reported = False

    @property
    def age_s(self) -> float:
        """Seconds since the core's last word, or since it was given work if that was later; 0 if it owes none."""
        return self._clock() - self._last_word_s if self._owed else 0.0

    @property
    def is_stalled(self) -> bool:
        """True if the core has been silent for longer than the limit."""
        return self.age_s > self._limit_s

    async def watch(self, ask_for_stacks: Callable[[], Awaitable[str]]) -> None:
        """Logs each stall once, with the stacks; runs until it is cancelled."""
        while True:
            await asyncio.sleep(min(MAX_PERIOD_S, self._limit_s / 4))
            if self.is_stalled and not self._is_reported:
                self._is_reported = True
                num_owed = len(self._owed)
                logger.error(
                    "No step has ended for %.1f s (--step-timeout-s %g); requests in the engine: %d. It is here:\n%s",
                    self.age_s,
                    self._limit_s,
                    num_owed,
                    await ask_for_stacks(),
                )
