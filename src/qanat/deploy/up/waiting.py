"""Follows a start until it answers, and says which stage it is in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qanat.deploy.diagnose.stages import WORDS, Stage, StageReader
from qanat.deploy.up.follow import Follower
from qanat.deploy.up.unit import Unit, answers

POLL_S = 1.0
DETAIL_EVERY_S = 30.0
"""Progress inside a stage is told no more often."""
Tell = Callable[[str], None]


class UnitError(Exception):
    """An engine or the proxy did not become ready, or ended.

    Args:
        unit: which one.
        what: happened, without its name.
        last_lines: of its log.
    """

    def __init__(self, unit: Unit, what: str, last_lines: Sequence[str]) -> None:
        super().__init__(f"{unit.name}: {what}")
        self.unit = unit
        self.last_lines = tuple(last_lines)


@dataclass(frozen=True)
class Patience:
    """Bounds of waiting.

    Attributes:
        ready_s: until it answers, from now.
        stall_s: without a new line in its log.
    """

    ready_s: float
    stall_s: float


class Watch:
    """One start that is followed.

    Args:
        unit: that starts.
        tell: gets a line for each stage, and now and then for progress inside of it.
    """

    def __init__(self, unit: Unit, tell: Tell) -> None:
        self.unit = unit
        self._tell = tell
        self._log = Follower(unit.log)
        self._stages = StageReader()
        self._began = time.monotonic()
        self._told_at = float("-inf")
        self._told_stage: str | None = None
        self._pending: Stage | None = None

    async def until_ready(self, patience: Patience) -> float:
        """Waits until the unit answers as ready.

        Returns:
            Seconds that it took.

        Raises:
            UnitError: it ended, stands still, or takes too long.
        """
        self._began = news_at = time.monotonic()
        while True:
            if self._read():
                news_at = time.monotonic()
            if not await self.unit.is_running():
                await self._read_rest()
                raise self._failure(f"it ended before it was ready{self._stage_reached()}")
            if await self.unit.is_ready():
                self._read()
                return time.monotonic() - self._began
            now = time.monotonic()
            if now - self._began >= patience.ready_s:
                raise self._failure(f"not ready after {patience.ready_s:g} s{self._stage_reached()}")
            # One that answers no requests itself may have nothing to say while the first of its group loads.
            if self.unit.answers_itself and now - news_at >= patience.stall_s:
                raise self._failure(f"its log stands still for {patience.stall_s:g} s{self._stage_reached()}")
            await asyncio.sleep(min(POLL_S, patience.ready_s, patience.stall_s))

    async def until_gone(self) -> None:
        """Waits until a unit that was ready ends.

        Raises:
            UnitError: always, once it has ended.
        """
        while await self.unit.is_running():
            self._log.read()
            await asyncio.sleep(POLL_S)
        await self._read_rest()
        raise self._failure("it ended")

    async def _read_rest(self) -> None:
        """Takes what a process said last, which may still be on its way to the log."""
        await asyncio.sleep(POLL_S)
        self._read()

    def _read(self) -> bool:
        """Takes what is new in the log; True if there was anything."""
        lines = self._log.read()
        for line in lines:
            news = self._stages.feed(line)
            if news is not None:
                self._show(news)
        if self._pending is not None:
            self._show(self._pending)
        return bool(lines)

    def _show(self, stage: Stage) -> None:
        now = time.monotonic()
        if stage.name == self._told_stage and now - self._told_at < DETAIL_EVERY_S:
            self._pending = stage
            return
        self._told_at, self._told_stage, self._pending = now, stage.name, None
        detail = f" ({stage.detail})" if stage.detail else ""
        self._tell(f"{self.unit.name}: {clock(now - self._began)}  {WORDS[stage.name]}{detail}")

    def _stage_reached(self) -> str:
        stage = self._stages.current
        return (
            f"; the last stage was: {WORDS[stage.name]}" if stage else "; its log shows no stage of a start"
        )

    def _failure(self, what: str) -> UnitError:
        return UnitError(self.unit, what, self._log.last)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


async def until_all_answer(urls: Sequence[str], timeout_s: float, tell: Tell) -> list[str]:
    """Waits for engines of other hosts.

    Args:
        urls: that must answer 200.
        timeout_s: at most.
        tell: is told whom it waits for.

    Returns:
        Those that did not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    missing = list(urls)
    is_told = False
    while True:
        results = await asyncio.gather(*(answers(url) for url in missing))
        missing = [url for url, is_ready in zip(missing, results, strict=True) if not is_ready]
        if not missing or time.monotonic() >= deadline:
            return missing
        if not is_told:
            tell(f"waiting for {', '.join(missing)}")
            is_told = True
        await asyncio.sleep(min(POLL_S, timeout_s))
