"""Output that a request brings along is continued exactly: text, stops, positions and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.batch import TokenLogprobs
from qanat.core.errors import InvalidRequestError
from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request
from qanat.core.sampling_params import SamplingParams
from qanat.engine.output_processor import OutputProcessor, prior_text
from tests.engine.test_detokenizer import TOKENIZER
from tests.support.scripted_engine import ScriptedEngine, start_scripted_engine


def events_after(token_ids: list[int], num_prior: int, sampling: SamplingParams) -> list[GenerationEvent]:
    """Events of an output of which the first tokens were there already."""
    request = Request(
        request_id="r",
        prompt_token_ids=[1],
        sampling=sampling,
        seed=0,
        output_token_ids=token_ids[:num_prior],
    )
    processor = OutputProcessor(TOKENIZER, request)
    events = []
    for position in range(num_prior, len(token_ids)):
        is_last = position == len(token_ids) - 1
        output = RequestOutput(
            request_id="r",
            new_token_ids=[token_ids[position]],
            logprobs=[TokenLogprobs([token_ids[position]], [-1.0], 1)],
            finish_reason=FinishReason.LENGTH if is_last else None,
        )
        events.append(processor.process(output).event)
        if events[-1].finish_reason is not None:
            break
    return events


@given(
    st.text(alphabet="ab€", min_size=1, max_size=12),
    st.integers(0, 40),
    st.lists(st.text(alphabet="ab€", min_size=1, max_size=3), max_size=2),
    st.integers(0, 5),
)
def test_a_continuation_says_exactly_what_was_still_to_be_said(
    text: str, cut: int, stops: list[str], min_tokens: int
) -> None:
    token_ids = TOKENIZER.encode(text)
    sampling = SamplingParams(max_tokens=64, stop=stops, min_tokens=min_tokens, logprobs=0)
    whole = events_after(token_ids, 0, sampling)
    num_prior = cut % len(token_ids)
    if num_prior >= len(whole):
        with pytest.raises(InvalidRequestError, match="already ended"):
            events_after(token_ids, num_prior, sampling)
        return
    rest = events_after(token_ids, num_prior, sampling)
    assert rest == whole[num_prior:]
    told = prior_text(TOKENIZER, sampling, token_ids[:num_prior])
    assert told == "".join(event.text for event in whole[:num_prior])


async def collect(
    scripted: ScriptedEngine, output_token_ids: Sequence[Sequence[int] | None] = (), **sampling: Any
) -> list[GenerationEvent]:
    stream = scripted.engine.generate([65, 66], SamplingParams(**sampling), output_token_ids=output_token_ids)
    return [event async for event in stream]


def test_only_choices_that_have_not_ended_are_continued() -> None:
    async def run() -> None:
        scripted = start_scripted_engine()
        scripted.say(["ab", "cd", "ef", "gh"])
        first = [scripted.tokenizer.piece_id("ab"), scripted.tokenizer.piece_id("cd")]
        events = await collect(scripted, [first, None, []], n=3, max_tokens=3, seed=1)
        by_choice = {i: "".join(event.text for event in events if event.index == i) for i in range(3)}
        assert by_choice == {0: "ef", 1: "", 2: "abcdef"}
        last = {event.index: event.num_output_tokens for event in events}
        assert last == {0: 3, 2: 3}
        stats = scripted.engine.stats()
        assert stats.histograms["request_generation_tokens"].total == 1 + 3
        await scripted.engine.shutdown()

    asyncio.run(run())


def test_min_tokens_counts_what_was_there() -> None:
    async def run() -> None:
        scripted = start_scripted_engine()
        scripted.say(["ab", "<|im_end|>", "cd", "<|im_end|>"])
        piece = scripted.tokenizer.piece_id("ab")
        events = await collect(scripted, [[piece]], max_tokens=8, min_tokens=2)
        assert "".join(event.text for event in events) == "cd"
        assert (events[-1].finish_reason, events[-1].num_output_tokens) == (FinishReason.STOP, 3)
        await scripted.engine.shutdown()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("output_token_ids", "message"),
    [
        ([[1], [2]], "one entry for each"),
        ([[8192]], "8192"),
        ([[-1]], "-1"),
        ([["a"]], "output_token_ids"),
        ([None], "nothing to continue"),
        ([[65] * 8], "max_tokens 8"),
        ([[65, 257]], "stop token"),
        ([[97, 98, 99]], "stop string"),
    ],
)
def test_what_cannot_be_continued_is_refused(output_token_ids: Any, message: str) -> None:
    async def run() -> None:
        scripted = start_scripted_engine()
        eos = scripted.tokenizer.eos_token_ids[0]
        given_ids = [[eos if i == 257 else i for i in ids] if ids else ids for ids in output_token_ids]
        with pytest.raises(InvalidRequestError, match=message) as refusal:
            await collect(scripted, given_ids, max_tokens=8, stop=["bc"])
        assert refusal.value.param == "output_token_ids"
        await scripted.engine.shutdown()

    asyncio.run(run())
