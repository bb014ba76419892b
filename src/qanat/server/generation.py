"""Runs the generations of one API request and merges their news into one stream of reply events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import cast

from qanat.core.errors import DeadlineError, QanatError
from qanat.core.events import GenerationEvent
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine
from qanat.server.assembler import Assembler
from qanat.server.errors import error_of
from qanat.server.events import Finish, ReplyEvent
from qanat.server.timing import Stopwatch

AssemblerFactory = Callable[[int], Assembler]
"""Makes the assembler of the choice with this index."""


@dataclass(frozen=True)
class Generation:
    """One prompt for the engine.

    Attributes:
        request_id: unique.
        prompt_token_ids: the prompt.
        sampling: as the engine is to see it.
        first_index: index of its first choice in the answer.
        priority: lower runs first under the priority policy.
        cache_salt: keeps cached prefixes of different owners apart.
        timeout_s: seconds until it must be done, from when the engine gets it.
        owner: whose it is; the engine takes turns between owners.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    first_index: int = 0
    priority: int = 0
    cache_salt: str = ""
    timeout_s: float | None = None
    owner: str = ""


async def reply_events(
    engine: AsyncEngine,
    generations: Sequence[Generation],
    make_assembler: AssemblerFactory,
    watch: Stopwatch,
) -> AsyncGenerator[ReplyEvent, None]:
    """Events of all choices of all generations; each choice ends with one `Finish`.

    Closing the generator aborts what still runs.

    Raises:
        QanatError: the engine refused or lost one of them; the others are aborted.
    """
    if len(generations) == 1:
        async with contextlib.aclosing(_events_of(engine, generations[0], make_assembler, watch)) as events:
            async for event in events:
                yield event
        return
    async with contextlib.aclosing(
        _merged([_events_of(engine, generation, make_assembler, watch) for generation in generations])
    ) as events:
        async for event in events:
            yield event


async def _events_of(
    engine: AsyncEngine, generation: Generation, make_assembler: AssemblerFactory, watch: Stopwatch
) -> AsyncGenerator[ReplyEvent, None]:
    """Events of one prompt's choices."""
    num_choices = generation.sampling.n
    assemblers = {i: make_assembler(generation.first_index + i) for i in range(num_choices)}
    source = engine.generate(
        generation.prompt_token_ids,
        generation.sampling,
        request_id=generation.request_id,
        priority=generation.priority,
        cache_salt=generation.cache_salt,
        timeout_s=generation.timeout_s,
        owner=generation.owner,
    )
    async with contextlib.aclosing(cast(AsyncGenerator[GenerationEvent, None], source)) as events:
        async for event in events:
            if event.finish_reason is FinishReason.ERROR:
                raise _error_of(event)
            watch.add(event)
            assembler = assemblers.get(event.index)
            if assembler is None:  # the choice ended at a stop string; this is what was on its way
                continue
            replies = assembler.push(event)
            if replies and isinstance(replies[-1], Finish):
                del assemblers[event.index]
                if event.finish_reason is None:
                    await engine.end_choice(generation.request_id, event)
            for reply in replies:
                yield reply
            if not assemblers:
                return


def _error_of(event: GenerationEvent) -> QanatError:
    error = error_of(event.error_code, event.error_message)
    if isinstance(error, DeadlineError):
        error.param = "timeout"
    return error


async def _merged(sources: Sequence[AsyncIterator[ReplyEvent]]) -> AsyncGenerator[ReplyEvent, None]:
    """Events of all sources as they come; the first error ends all."""
    news: asyncio.Queue[ReplyEvent | Exception | None] = asyncio.Queue()

    async def pump(source: AsyncIterator[ReplyEvent]) -> None:
        try:
            async for event in source:
                news.put_nowait(event)
        except Exception as error:  # handed over, to be raised where the events are read
            news.put_nowait(error)
        else:
            news.put_nowait(None)

    pumps = [asyncio.create_task(pump(source)) for source in sources]
    num_open = len(pumps)
    try:
        while num_open:
            item = await news.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield item
    finally:  # cancelling a pump closes its source, which aborts
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
