"""Several servers followed at once: their last readings, and the figures of each."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qanat.bench.live.figures import Span
from qanat.bench.live.reading import Reading, take_reading
from qanat.bench.online.target import Target
from qanat.core.decision import Decision

READ_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class View:
    """One server at one moment.

    Attributes:
        server: its URL.
        figures: see `Span.figures`; None while it cannot be read.
        failure: why not; empty if it can.
        decisions: of its plan; None if it tells none.
    """

    server: str
    figures: dict[str, Any] | None
    failure: str
    decisions: tuple[Decision, ...] | None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        if self.figures is None:
            return {"server": self.server, "error": self.failure}
        decisions = None
        if self.decisions is not None:
            decisions = [
                {"field": one.field, "wanted": one.wanted, "got": one.got, "why": one.why}
                for one in self.decisions
            ]
        return {"server": self.server, **self.figures, "decisions": decisions}


class Watched:
    """One server and its last readings.

    Args:
        target: the server.
        tls: for https.
        window_s: figures are those of so many last seconds, or of the last two readings if that is longer.
    """

    def __init__(self, target: Target, tls: ssl.SSLContext | None, window_s: float) -> None:
        self._target = target
        self._tls = tls
        self._window_s = window_s
        self._readings: deque[Reading] = deque()
        self._decisions: tuple[Decision, ...] | None = None

    async def read(self) -> View:
        """Reads once more. What came before a failure or a restart is forgotten, as nothing is known between."""
        has_plan = not self._readings
        reading = await take_reading(self._target, self._tls, READ_TIMEOUT_S, has_plan=has_plan)
        server = str(self._target.address)
        if reading.failure:
            self._readings.clear()
            return View(server, None, reading.failure, None)
        if self._readings and Span(self._readings[-1], reading).is_restarted:
            self._readings.clear()
            reading = await take_reading(self._target, self._tls, READ_TIMEOUT_S, has_plan=True)
            has_plan = True
            if reading.failure:
                return View(server, None, reading.failure, None)
        if has_plan:
            self._decisions = reading.decisions
        self._readings.append(reading)
        while len(self._readings) > 2 and self._readings[1].moment_s <= reading.moment_s - self._window_s:
            self._readings.popleft()
        before = self._readings[0] if len(self._readings) > 1 else None
        return View(server, Span(before, reading).figures(), "", self._decisions)


async def read_all(watched: Sequence[Watched]) -> list[View]:
    """All servers, at the same time."""
    return list(await asyncio.gather(*(one.read() for one in watched)))
