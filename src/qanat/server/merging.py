"""Merges the news of many prompts into one stream: they begin a few at a time, and unread news has a bound."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable

from qanat.core.errors import SlowClientError
from qanat.server.events import ReplyStep
from qanat.server.turnstile import Turnstile

MAX_UNREAD_STEPS = 8192
"""Steps of all prompts together that may wait for a reader who lags; beyond, the request ends with an error."""
MIN_UNREAD_PER_CHOICE = 64
"""So many of each choice that runs may wait in any case: a short pause of the reader ends nothing."""

Source = AsyncGenerator[ReplyStep, None]


async def merged(
    sources: Iterable[Source], turnstile: Turnstile, num_choices_at_once: int
) -> AsyncGenerator[ReplyStep, None]:
    """News of all sources as they come; closing it closes them.

    Args:
        sources: one per prompt; taken from here when it begins.
        turnstile: each prompt passes it, as every request does.
        num_choices_at_once: how many choices can run at a time.

    Raises:
        QanatError: the first error of a source, which ends the others.
        SlowClientError: too much is unread; what was there has been yielded before.
    """
    merger = _Merger(turnstile, max(MAX_UNREAD_STEPS, MIN_UNREAD_PER_CHOICE * num_choices_at_once))
    starting = asyncio.create_task(merger.start_all(sources))
    try:
        while (item := await merger.news.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await merger.stop()


class _Merger:
    """The tasks that read the sources, and what they have read.

    Attributes:
        news: steps; an error where it is to be raised; None at the end.
    """

    def __init__(self, turnstile: Turnstile, max_unread_steps: int) -> None:
        self.news: asyncio.Queue[ReplyStep | Exception | None] = asyncio.Queue()
        self._turnstile = turnstile
        self._max_unread_steps = max_unread_steps
        self._pumps: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def start_all(self, sources: Iterable[Source]) -> None:
        """Starts each source in its turn, then says when all have ended."""
        all_pumps = []
        for source in sources:
            await self._turnstile.enter()
            if self._is_over:
                return
            pump = asyncio.create_task(self._pump(source))
            all_pumps.append(pump)
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)
        await asyncio.gather(*all_pumps, return_exceptions=True)
        self.news.put_nowait(None)

    async def stop(self) -> None:
        """Ends what still runs, which aborts it in the engine."""
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source: Source) -> None:
        try:
            async with contextlib.aclosing(source):
                async for step in source:
                    if self.news.qsize() >= self._max_unread_steps:
                        raise SlowClientError(
                            "The client reads its stream too slowly; the request was ended."
                        )
                    self.news.put_nowait(step)
        except Exception as error:  # handed over, to be raised where the steps are read
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Only the first error counts. The reader may be away for long, so the others end now."""
        if self._is_over:
            return
        self._is_over = True
        self.news.put_nowait(error)
        for pump in self._pumps:
            if pump is not asyncio.current_task():
                pump.cancel()
