"""The front end over a real core process: order, refusals, aborts, deadlines, and both kinds of death."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from qanat.core.errors import (
    ContextLengthError,
    EngineDeadError,
    InvalidRequestError,
    QanatError,
    QueueFullError,
)
from qanat.core.events import GenerationEvent
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine
from tests.support.stopped import stopped
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_S = 60.0
MAX_LEN = 4096
FOREVER = SamplingParams(max_tokens=4000, ignore_eos=True, temperature=0.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[AsyncEngine]:
    started = await AsyncEngine.start(
        tiny_config(max_num_seqs=4, max_waiting_requests=3, max_model_len=MAX_LEN)
    )
    yield started
    await started.shutdown()


async def collect(engine: AsyncEngine, prompt: list[int], **sampling: Any) -> list[GenerationEvent]:
    params = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **sampling})
    return [event async for event in engine.generate(prompt, params)]


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def pid_of(engine: AsyncEngine) -> int:
    assert engine.core_pid is not None
    return engine.core_pid


def is_idle(engine: AsyncEngine) -> bool:
    stats = engine.stats()
    return (stats.num_running, stats.num_waiting, stats.cache_usage) == (0, 0, 0.0)


async def test_each_choice_ends_exactly_once(engine: AsyncEngine) -> None:
    events = await collect(engine, [7, 8, 9], n=3, temperature=1.0, seed=1, max_tokens=9)
    ends = [event.index for event in events if event.finish_reason is not None]
    assert sorted(ends) == [0, 1, 2]
    for index in range(3):
        own = [event for event in events if event.index == index]
        assert sum(len(event.token_ids) for event in own) == own[-1].num_output_tokens == 9
        assert own[-1].timing is not None


async def test_a_choice_of_n_equals_the_same_seed_alone(engine: AsyncEngine) -> None:
    several = await collect(engine, [7, 8, 9], n=2, temperature=1.0, seed=1, max_tokens=12)
    alone = await collect(engine, [7, 8, 9], n=1, temperature=1.0, seed=1, max_tokens=12)
    first = [token_id for event in several if event.index == 0 for token_id in event.token_ids]
    assert first == [token_id for event in alone for token_id in event.token_ids]


async def test_wrong_requests_are_refused_before_anything_is_queued(engine: AsyncEngine) -> None:
    for prompt, sampling, error in [
        ([], {}, InvalidRequestError),
        ([10**6], {}, InvalidRequestError),
        ([-1], {}, InvalidRequestError),
        ([7] * (MAX_LEN + 1), {}, ContextLengthError),
        ([7] * MAX_LEN, {"max_tokens": 1}, ContextLengthError),
        ([7], {"max_tokens": MAX_LEN}, ContextLengthError),
        ([7], {"logit_bias": {500: 1.0}}, InvalidRequestError),
        ([7], {"stop": ["x"], "detokenize": False}, InvalidRequestError),
    ]:
        with pytest.raises(error):
            await collect(engine, prompt, **sampling)
    assert engine.health().num_pending == 0


async def test_no_bound_means_as_many_tokens_as_fit(engine: AsyncEngine) -> None:
    events = await collect(engine, [7] * (MAX_LEN - 6), max_tokens=None)
    assert events[-1].num_output_tokens == 6
    assert events[-1].finish_reason is FinishReason.LENGTH


async def test_a_full_queue_refuses_and_the_rest_goes_on(engine: AsyncEngine) -> None:
    num_aborted = engine.stats().num_finished["abort"]
    calls = [asyncio.create_task(collect(engine, [7, i], max_tokens=150)) for i in range(20)]
    with stopped(pid_of(engine)):  # so that none has ended before the last one is there
        await wait_until(lambda: engine.health().num_pending == 20)
    results = await asyncio.gather(*calls, return_exceptions=True)
    answered = [each for each in results if isinstance(each, list)]
    refused = [each for each in results if isinstance(each, QueueFullError)]
    assert len(answered) >= 7
    assert len(refused) == 20 - len(answered) > 0
    assert engine.stats().num_finished["abort"] == num_aborted
    assert {events[-1].num_output_tokens for events in answered} == {150}
    await wait_until(lambda: is_idle(engine))


async def test_closing_the_iterator_frees_everything(engine: AsyncEngine) -> None:
    stream = engine.generate([7, 8], SamplingParams(n=3, max_tokens=4000, ignore_eos=True))
    await anext(stream)
    await stream.aclose()
    await wait_until(lambda: is_idle(engine))
    assert engine.health().num_pending == 0


async def test_abort_by_id_ends_with_its_own_reason(engine: AsyncEngine) -> None:
    stream = engine.generate([7, 8], FOREVER, request_id="mine")
    await anext(stream)
    assert await engine.abort("mine")
    rest = [event async for event in stream]
    assert rest[-1].finish_reason is FinishReason.ABORT
    assert not await engine.abort("mine")


async def test_a_choice_that_its_caller_ends_counts_as_stopped(engine: AsyncEngine) -> None:
    before = engine.stats().num_finished
    for num_choices in (1, 2):
        sampling = SamplingParams(n=num_choices, max_tokens=4000, ignore_eos=True)
        stream = engine.generate([7, 8], sampling, request_id="mine")
        open_indexes = set(range(num_choices))
        async for event in stream:
            assert event.index in open_indexes and event.finish_reason is None
            open_indexes.discard(event.index)
            await engine.end_choice("mine", event)
        assert not open_indexes
    after = engine.stats().num_finished
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {"stop": 3}
    await wait_until(lambda: is_idle(engine))


async def test_settings_that_exclude_every_token_are_the_callers_fault(engine: AsyncEngine) -> None:
    with pytest.raises(InvalidRequestError, match="allowed_token_ids"):
        await collect(engine, [7], allowed_token_ids=[9], bad_words_token_ids=[[9]])


async def test_an_id_may_be_used_again_at_once(engine: AsyncEngine) -> None:
    stream = engine.generate([7, 8], FOREVER, request_id="again")
    await anext(stream)
    await stream.aclose()
    ends = SamplingParams(max_tokens=200, ignore_eos=True)
    events = [event async for event in engine.generate([7, 8], ends, request_id="again")]
    assert events[-1].finish_reason is FinishReason.LENGTH
    assert events[-1].num_output_tokens == 200


async def test_a_client_that_pauses_does_not_make_the_engine_look_stalled(engine: AsyncEngine) -> None:
    stream = engine.generate([7, 8], SamplingParams(max_tokens=5, ignore_eos=True))
    token_ids = list((await anext(stream)).token_ids)
    await wait_until(lambda: engine.stats().num_running == 0)
    assert engine.health().num_pending == 0
    assert engine.health().last_step_age_s == 0.0
    token_ids += [token_id async for event in stream for token_id in event.token_ids]
    assert len(token_ids) == 5


async def test_wrong_types_are_refused_and_the_core_lives(engine: AsyncEngine) -> None:
    with pytest.raises(InvalidRequestError, match="token ids"):
        await collect(engine, [7.0, 8.5])  # type: ignore[list-item]
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        SamplingParams(max_tokens=3.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="priority"):
        await anext(engine.generate([7], FOREVER, priority=10**30))
    assert (await collect(engine, [7], max_tokens=1))[-1].num_output_tokens == 1


async def test_all_requests_can_be_ended_with_an_error(engine: AsyncEngine) -> None:
    stream = engine.generate([7, 8], FOREVER)
    await anext(stream)
    await engine.end_all(QanatError("the house closes"))
    with pytest.raises(QanatError, match="the house closes"):
        async for _ in stream:
            pass
    await wait_until(lambda: is_idle(engine))


async def test_an_id_in_use_is_refused(engine: AsyncEngine) -> None:
    stream = engine.generate([7, 8], FOREVER, request_id="twice")
    await anext(stream)
    with pytest.raises(InvalidRequestError, match="twice"):
        await anext(engine.generate([7], FOREVER, request_id="twice"))
    await stream.aclose()
    await wait_until(lambda: is_idle(engine))


async def test_a_deadline_ends_the_request_with_an_error(engine: AsyncEngine) -> None:
    events = [event async for event in engine.generate([7, 8], FOREVER, timeout_s=0.0)]
    assert events[-1].finish_reason is FinishReason.ERROR
    assert events[-1].error_code == "deadline_exceeded"


async def test_stop_string_ends_the_request_in_the_core_too(engine: AsyncEngine) -> None:
    whole = "".join(event.text for event in await collect(engine, [70, 71], max_tokens=60))
    stop = whole[8:10]
    events = await collect(engine, [70, 71], max_tokens=200, stop=[stop])
    text = "".join(event.text for event in events)
    assert text == whole[: whole.index(stop)]
    assert events[-1].stop_reason == stop
    await wait_until(lambda: is_idle(engine))


async def test_death_of_the_core_reaches_every_caller() -> None:
    engine = await AsyncEngine.start(tiny_config(max_model_len=4096))
    try:
        params = SamplingParams(max_tokens=4000, ignore_eos=True)
        streams = [engine.generate([7, i], params) for i in range(6, 9)]
        for stream in streams:
            await anext(stream)
        os.kill(pid_of(engine), signal.SIGKILL)
        for stream in streams:
            with pytest.raises(EngineDeadError):
                async with asyncio.timeout(WAIT_S):
                    async for _ in stream:
                        pass
        assert not engine.health().is_alive
        with pytest.raises(EngineDeadError):
            await collect(engine, [7])
    finally:
        await engine.shutdown()


async def test_a_frozen_core_is_unhealthy_while_work_waits() -> None:
    config = dataclasses.replace(tiny_config(max_model_len=4096), step_timeout_s=0.5)
    engine = await AsyncEngine.start(config)
    stream = engine.generate([7, 8], SamplingParams(max_tokens=4000, ignore_eos=True))
    try:
        await anext(stream)
        with stopped(pid_of(engine)):
            await wait_until(lambda: not engine.health().is_healthy)
            assert engine.health().is_alive
    finally:
        await stream.aclose()
        await engine.shutdown()
