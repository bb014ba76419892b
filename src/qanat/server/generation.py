"""Runs the generations of one API request and merges their news into one stream of reply events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from qanat.core.constraint import Thinking
from qanat.core.errors import InvalidRequestError, QanatError
from qanat.core.events import GenerationEvent
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.core.timeouts import Timeouts
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.continuation import PriorOutput
from qanat.server.assembler import Assembler
from qanat.server.errors import error_of
from qanat.server.events import Finish, ReplyEvent, ReplyStep
from qanat.server.merging import merged
from qanat.server.timing import Stopwatch
from qanat.server.turnstile import Turnstile

MAX_INLINE_TOKENS = 500
"""Outputs up to this length are read again in place: a few milliseconds."""

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
        boundaries: positions at which later prompts are likely to part from this one.
        thinking: where its output begins; a form that it must have begins after the reasoning.
        timeout_s: seconds until it must be done, or have come so far, from when the engine gets it.
        owner: whose it is; the engine takes turns between owners.
        output_token_ids: output of an earlier request that is resumed: see `AsyncEngine.generate`.
        data_parallel_rank: the replica that is to compute it; None for any.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    first_index: int = 0
    priority: int = 0
    cache_salt: str = ""
    boundaries: Sequence[int] = ()
    timeout_s: Timeouts | None = None
    thinking: Thinking = Thinking.NONE
    owner: str = ""
    output_token_ids: PriorOutput = ()
    data_parallel_rank: int | None = None

    @property
    def indices(self) -> list[int]:
        """Of the choices that it has in the answer."""
        prior = self.output_token_ids or [[]] * self.sampling.n
        return [self.first_index + i for i, output in enumerate(prior) if output is not None]


def reply_events(
    engine: AsyncEngine,
    generations: Sequence[Generation],
    make_assembler: AssemblerFactory,
    watch: Stopwatch,
    turnstile: Turnstile,
) -> AsyncGenerator[ReplyStep, None]:
    """News of all choices of all generations; each choice ends with one `Finish`.

    Closing the generator aborts what still runs.

    Args:
        engine: generates.
        generations: at least one.
        make_assembler: makes one per choice.
        watch: is shown every event.
        turnstile: where the prompts of a request with several begin; a single one has passed it with its request.

    Raises:
        SlowClientError: the reader is far behind.
        QanatError: the engine refused or lost one of them; the others are aborted.
    """
    if len(generations) == 1:
        return _steps_of(engine, generations[0], make_assembler, watch)
    sources = (_steps_of(engine, generation, make_assembler, watch) for generation in generations)
    num_choices = sum(len(generation.indices) for generation in generations)
    num_at_once = min(num_choices, engine.config.scheduler.max_num_seqs)
    return merged(sources, turnstile, num_at_once)


class _Choice:
    """One choice in the making: its assembler, and how many tokens it has."""

    def __init__(self, index: int, assembler: Assembler) -> None:
        self._index = index
        self._assembler = assembler
        self._num_tokens = 0

    def replay(self, token_ids: Sequence[int]) -> ReplyStep:
        """Takes the output so far of a choice that is resumed.

        Raises:
            InvalidRequestError: it has ended.
        """
        events = self._assembler.replay(token_ids)
        if events and isinstance(events[-1], Finish):
            raise InvalidRequestError(
                f"Choice {self._index} has ended within the tokens given; give null for a choice that has ended.",
                param="output_token_ids",
            )
        return msgspec.structs.replace(self._step(events, list(token_ids), 0), is_prior=True)

    def push(self, event: GenerationEvent) -> ReplyStep:
        """Takes the engine's next event."""
        step = self._step(self._assembler.push(event), event.token_ids, event.num_cached_tokens)
        if event.num_drafted:
            counts = {"num_drafted": event.num_drafted, "num_accepted": event.num_accepted}
            step = msgspec.structs.replace(step, **counts)
        return step

    def _step(self, events: list[ReplyEvent], token_ids: list[int], num_cached_tokens: int) -> ReplyStep:
        if events and isinstance(events[-1], Finish):  # the output may end before the event does
            token_ids = token_ids[: events[-1].num_output_tokens - self._num_tokens]
        self._num_tokens += len(token_ids)
        num_reasoning_tokens = self._assembler.num_reasoning_tokens
        return ReplyStep(self._index, events, token_ids, num_reasoning_tokens, num_cached_tokens)


async def _replayed(choice: _Choice, token_ids: Sequence[int]) -> ReplyStep:
    """The output so far, read again; a long one in a thread, so that other answers go on meanwhile."""
    if len(token_ids) <= MAX_INLINE_TOKENS:
        return choice.replay(token_ids)
    return await asyncio.to_thread(choice.replay, token_ids)


async def _steps_of(
    engine: AsyncEngine, generation: Generation, make_assembler: AssemblerFactory, watch: Stopwatch
) -> AsyncGenerator[ReplyStep, None]:
    """News of one prompt's choices."""
    first = generation.first_index
    choices = {index - first: _Choice(index, make_assembler(index)) for index in generation.indices}
    prior = [await _replayed(choices[i], ids) for i, ids in enumerate(generation.output_token_ids) if ids]
    source = engine.generate(
        generation.prompt_token_ids,
        generation.sampling,
        request_id=generation.request_id,
        priority=generation.priority,
        cache_salt=generation.cache_salt,
        boundaries=generation.boundaries,
        timeout_s=generation.timeout_s,
        thinking=generation.thinking,
        owner=generation.owner,
        output_token_ids=generation.output_token_ids,
        data_parallel_rank=generation.data_parallel_rank,
    )
    async with contextlib.aclosing(cast(AsyncGenerator[GenerationEvent, None], source)) as events:
        async for event in events:
            watch.add(event)
            if event.finish_reason is FinishReason.ERROR:
                raise _error_of(event)
            while prior:  # not before the engine has taken the request
                yield prior.pop(0)
            choice = choices.get(event.index)
            if choice is None:  # the choice ended at a stop string; this is what was on its way
                continue
            step = choice.push(event)
            if step.is_last:
                del choices[event.index]
                if event.finish_reason is None:
                    watch.add_times(await engine.end_choice(generation.request_id, event))
            yield step
            if not choices:
                return


def _error_of(event: GenerationEvent) -> QanatError:
    error = error_of(event.error_code, event.error_message)
    error.param = event.error_param or None
    return error
