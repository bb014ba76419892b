"""Forms with a real core process: the model's own logits under masks, preempted, continued, beside plain requests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from qanat.core.constraint import Constraint, Thinking
from qanat.core.errors import StructuredOutputError
from qanat.core.events import GenerationEvent
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.sync_engine import SyncEngine
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBERS = StructuredOutputsParams(
    json={"type": "array", "items": {"enum": ["A", "BC", 7]}, "minItems": 3, "maxItems": 5}
)
"""The tiny model's tokens are bytes up to 95: no braces and no small letters."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[AsyncEngine]:
    started = await AsyncEngine.start(tiny_config(max_num_seqs=4))
    yield started
    await started.shutdown()


async def collect(
    engine: AsyncEngine,
    form: StructuredOutputsParams | None,
    prompt: Sequence[int] = (7, 8, 9),
    output_token_ids: Sequence[Sequence[int] | None] = (),
    **sampling: Any,
) -> list[GenerationEvent]:
    params = SamplingParams(
        **({"temperature": 1.0, "seed": 5, "max_tokens": 120} | sampling), structured_outputs=form
    )
    return [event async for event in engine.generate(list(prompt), params, output_token_ids=output_token_ids)]


def choice(events: list[GenerationEvent], index: int = 0) -> tuple[str, list[int]]:
    mine = [event for event in events if event.index == index]
    return "".join(event.text for event in mine), [t for event in mine for t in event.token_ids]


def check(text: str) -> None:
    values = json.loads(text)
    assert 3 <= len(values) <= 5 and all(value in ("A", "BC", 7) for value in values)


async def test_the_whole_output_has_the_form_greedy_and_drawn(engine: AsyncEngine) -> None:
    for sampling in ({"temperature": 0.0}, {"temperature": 1.5}, {"top_k": 3}, {"min_tokens": 60}):
        events = await collect(engine, NUMBERS, **sampling)
        check(choice(events)[0])
        assert events[-1].finish_reason is FinishReason.STOP


async def test_each_choice_of_n_equals_itself_alone_and_seeds_repeat(engine: AsyncEngine) -> None:
    together = await collect(engine, NUMBERS, n=3)
    for index in range(3):
        check(choice(together, index)[0])
    assert choice(await collect(engine, NUMBERS), 0) == choice(together, 0)
    assert len({choice(together, index)[0] for index in range(3)}) > 1


async def test_a_continued_output_goes_on_exactly(engine: AsyncEngine) -> None:
    _, tokens = choice(await collect(engine, NUMBERS))
    for cut in (1, 5, len(tokens) - 1):
        _, rest = choice(await collect(engine, NUMBERS, output_token_ids=[tokens[:cut]]))
        assert tokens[:cut] + rest == tokens


async def test_prior_output_outside_the_form_is_refused(engine: AsyncEngine) -> None:
    with pytest.raises(StructuredOutputError, match="does not allow"):
        await collect(engine, NUMBERS, output_token_ids=[[ord("Z")]])


async def test_scores_are_those_of_the_model_not_of_the_mask(engine: AsyncEngine) -> None:
    held = await collect(engine, StructuredOutputsParams(choice=["Q"]), logprobs=2, max_tokens=1)
    free = await collect(engine, None, logprobs=2, max_tokens=1)
    assert held[0].logprobs[0].top == free[0].logprobs[0].top
    assert held[0].logprobs[0].chosen.token_id == ord("Q")
    assert held[0].logprobs[0].chosen.logprob < -0.1


async def test_api_056_forms_that_fail_leave_plain_requests_and_the_core_alone(engine: AsyncEngine) -> None:
    alone = choice(await collect(engine, None, max_tokens=60))
    pid = engine.core_pid
    plain = asyncio.create_task(collect(engine, None, max_tokens=60))
    bad = [
        StructuredOutputsParams(regex="("),
        StructuredOutputsParams(json={"type": "object", "properties": {"foo": "bar"}}),
        StructuredOutputsParams(grammar="start: nowhere"),
        StructuredOutputsParams(regex="[^\\x00-\\U0010FFFF]"),
        StructuredOutputsParams(choice=["x" * 2**20]),
    ]
    for form in bad:
        with pytest.raises(StructuredOutputError):
            await collect(engine, form)
    assert choice(await plain) == alone
    assert engine.core_pid == pid and engine.health().is_healthy


async def test_api_056_a_failure_of_the_second_compilation_ends_one_request(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(grammar: str, thinking: Thinking) -> Constraint:
        return Constraint("guidance", "start: nowhere")

    alone = choice(await collect(engine, None, max_tokens=60))
    plain = asyncio.create_task(collect(engine, None, max_tokens=60))
    with monkeypatch.context() as patch:
        patch.setattr(engine._forms.maker, "constraint", broken)
        with pytest.raises(StructuredOutputError, match="cannot be followed"):
            await collect(engine, NUMBERS)
    assert choice(await plain) == alone
    check(choice(await collect(engine, NUMBERS))[0])


async def test_a_compile_process_killed_from_outside_costs_nothing(engine: AsyncEngine) -> None:
    await collect(engine, StructuredOutputsParams(regex="[0-9]{4}"))
    pid = engine._forms.compiler.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    text, _ = choice(await collect(engine, StructuredOutputsParams(regex="[A-F]{4}")))
    assert len(text) == 4 and set(text) <= set("ABCDEF")


async def test_a_core_that_serves_anew_knows_the_vocabulary(engine: AsyncEngine) -> None:
    """The line to the core says when another one serves."""
    engine._is_vocabulary_sent = False
    check(choice(await collect(engine, NUMBERS))[0])


async def test_preempted_requests_keep_to_their_form_and_say_the_same() -> None:
    prompts = [[7 + i, 8, 9] for i in range(4)]
    long = StructuredOutputsParams(
        json={"type": "array", "items": {"enum": ["A", "BC", 7]}, "minItems": 20, "maxItems": 20}
    )
    sampling = SamplingParams(temperature=1.0, seed=5, max_tokens=200, structured_outputs=long)

    def outputs(**settings: Any) -> tuple[list[tuple[str, list[int]]], int]:
        """All prompts in one engine that is stepped here: they begin together, whatever else the machine does."""
        sync = SyncEngine(tiny_config(**settings))
        try:
            for i, prompt in enumerate(prompts):
                sync.add(str(i), prompt, sampling)
            events = list(sync.run())
            said = [
                choice([event for owner, event in events if owner == str(i)]) for i in range(len(prompts))
            ]
            return said, sync.stats().num_preemptions
        finally:
            sync.shutdown()

    alone, _ = await asyncio.to_thread(outputs, max_num_seqs=1)
    together, num_preemptions = await asyncio.to_thread(
        outputs, max_num_seqs=4, cache={"num_blocks_override": 20}
    )
    assert num_preemptions > 0
    for text, _ in alone:
        assert len(json.loads(text)) == 20
    assert together == alone


async def test_offline_engine_says_what_the_server_says(engine: AsyncEngine) -> None:
    expected = choice(await collect(engine, NUMBERS))

    def offline() -> tuple[str, list[int]]:
        sync = SyncEngine(tiny_config(max_num_seqs=4))
        try:
            params = SamplingParams(temperature=1.0, seed=5, max_tokens=120, structured_outputs=NUMBERS)
            sync.add("a", [7, 8, 9], params)
            sync.add("b", [7, 8, 9], SamplingParams(max_tokens=4))
            events = [event for owner, event in sync.run() if owner == "a"]
            with pytest.raises(StructuredOutputError):
                bad = StructuredOutputsParams(regex="(")
                sync.add("c", [7], SamplingParams(structured_outputs=bad))
            return choice(events)
        finally:
            sync.shutdown()

    assert await asyncio.to_thread(offline) == expected
