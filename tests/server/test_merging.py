"""Many prompts in one request: they begin a few at a time, and a reader who lags is not waited for without end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from qanat.core.errors import ContextLengthError, SlowClientError
from qanat.core.sampling_params import SamplingParams
from qanat.server.assembler import Assembler, PlainAssembler
from qanat.server.generation import Generation, reply_events
from qanat.server.merging import MAX_UNREAD_STEPS, MIN_UNREAD_PER_CHOICE
from qanat.server.timing import Stopwatch
from qanat.server.turnstile import Turnstile
from tests.support.scripted_engine import ScriptedEngine, start_scripted_engine

pytestmark = pytest.mark.asyncio
PER_TURN = 4
BOUND_S = 60.0


def generations(num: int, num_tokens: int, prompt: list[int] | None = None) -> list[Generation]:
    sampling = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
    return [Generation(f"r{i}", prompt or [65, i % 256], sampling, first_index=i) for i in range(num)]


async def idle(scripted: ScriptedEngine) -> None:
    """Waits until the engine works for nobody."""
    async with asyncio.timeout(BOUND_S):
        while scripted.engine.num_calls or scripted.core.has_work:
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def steps_of(scripted: ScriptedEngine, wanted: list[Generation], turnstile: Turnstile | None = None):  # type: ignore[no-untyped-def]
    def make_assembler(index: int) -> Assembler:
        return PlainAssembler(index, scripted.engine.tokenizer, wanted[0].sampling)

    steps = reply_events(
        scripted.engine, wanted, make_assembler, Stopwatch(), turnstile or Turnstile(PER_TURN)
    )
    async with contextlib.aclosing(steps):
        yield steps


async def test_the_prompts_of_one_request_begin_over_many_turns() -> None:
    scripted = start_scripted_engine(max_waiting_requests=200)
    most_per_turn = 0

    async def count() -> None:
        nonlocal most_per_turn
        before = scripted.engine.num_calls
        while True:
            await asyncio.sleep(0)
            most_per_turn = max(most_per_turn, scripted.engine.num_calls - before)
            before = scripted.engine.num_calls

    scripted.client.hold()
    counting = asyncio.create_task(count())
    async with steps_of(scripted, generations(100, 1)) as steps:
        first = asyncio.ensure_future(anext(steps))
        async with asyncio.timeout(BOUND_S):
            while scripted.engine.num_calls < 100:
                await asyncio.sleep(0)
        scripted.client.release()
        seen = [await first, *[step async for step in steps]]
    counting.cancel()
    assert sorted(step.index for step in seen if step.is_last) == list(range(100))
    assert 0 < most_per_turn <= PER_TURN
    await idle(scripted)
    await scripted.engine.shutdown()


async def test_others_pass_the_turnstile_between_the_prompts_of_one_request() -> None:
    scripted = start_scripted_engine(max_waiting_requests=200)
    scripted.client.hold()
    turnstile = Turnstile(1)
    async with steps_of(scripted, generations(100, 1), turnstile) as steps:
        first = asyncio.ensure_future(anext(steps))
        while not scripted.engine.num_calls:
            await asyncio.sleep(0)
        async with asyncio.timeout(BOUND_S):
            await turnstile.enter()
        assert scripted.engine.num_calls < 10
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    scripted.client.release()
    await idle(scripted)
    await scripted.engine.shutdown()


async def test_a_reader_who_lags_ends_the_request_with_many_prompts_too() -> None:
    scripted = start_scripted_engine()
    num_tokens = MAX_UNREAD_STEPS // 8 + 200
    assert num_tokens < 2048
    async with steps_of(scripted, generations(8, num_tokens)) as steps:
        await anext(steps)
        await idle(scripted)
        num_read = 1
        with pytest.raises(SlowClientError):
            async for _ in steps:
                num_read += 1
        assert MAX_UNREAD_STEPS <= num_read < 8 * num_tokens
    await scripted.engine.shutdown()


async def test_a_reader_who_keeps_up_gets_everything_however_much_it_is() -> None:
    scripted = start_scripted_engine()
    num_tokens = MAX_UNREAD_STEPS // 8 + 200
    async with steps_of(scripted, generations(8, num_tokens)) as steps:
        num_tokens_read = sum([len(step.token_ids) async for step in steps])
    assert num_tokens_read == 8 * num_tokens
    await scripted.engine.shutdown()


async def test_each_of_many_choices_may_have_some_steps_unread() -> None:
    """A short pause of the reader must not end a request whose many choices all run."""
    num_choices = 2 * MAX_UNREAD_STEPS // MIN_UNREAD_PER_CHOICE
    scripted = start_scripted_engine(max_num_seqs=num_choices, max_waiting_requests=num_choices)
    num_tokens = MIN_UNREAD_PER_CHOICE - 2
    assert num_choices * num_tokens > MAX_UNREAD_STEPS
    async with steps_of(scripted, generations(num_choices, num_tokens), Turnstile(num_choices)) as steps:
        await anext(steps)
        await idle(scripted)
        num_ends = sum([step.is_last async for step in steps])
    assert num_ends == num_choices
    await scripted.engine.shutdown()


async def test_the_first_refusal_keeps_the_rest_from_beginning() -> None:
    scripted = start_scripted_engine(max_waiting_requests=200)
    scripted.client.hold()
    wanted = generations(1, 1, prompt=[65] * 3000) + generations(100, 1)[1:]
    with pytest.raises(ContextLengthError):
        async with steps_of(scripted, wanted, Turnstile(1)) as steps:
            async for _ in steps:
                pass
    assert scripted.engine.num_calls == 0
    assert scripted.client.num_aborts < 10
    scripted.client.release()
    await idle(scripted)
    await scripted.engine.shutdown()
