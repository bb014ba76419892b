"""A deadline that is moved at every message and hardly ever reached; moving it costs an assignment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls back once the time set last has passed; setting a later time leaves the running timer alone."""

    __slots__ = ("_loop", "_callback", "_when", "_timer", "_timer_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._when: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_when = 0.0

    def set(self, delay_s: float | None) -> None:
        """Due in `delay_s` seconds from now, whatever was set before; None for never."""
        if delay_s is None:
            self._when = None
            return
        when = self._when = self._loop.time() + delay_s
        if self._timer is not None:
            if self._timer_when <= when:
                return
            self._timer.cancel()
        self._arm(when)

    def cancel(self) -> None:
        """Never due again, and nothing is left in the event loop."""
        self._when = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self._timer_when = when
        self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        when = self._when
        if when is None:
            return
        if when > self._timer_when:
            self._arm(when)
            return
        self._when = None
        self._callback()
