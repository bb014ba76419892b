"""Lists of prompts: prepared in one piece of work, off the event loop where they are long together."""

from __future__ import annotations

import asyncio
import threading

import pytest

from qanat.config.resolved import CacheLimits, ResolvedConfig, SchedulerLimits
from qanat.core.errors import ContextLengthError, InvalidRequestError
from qanat.core.sampling_params import SamplingParams
from qanat.server.encoding import PromptEncoder
from qanat.server.prompts import MAX_PROMPT_SCORES, Prompt, check_num_scores, read_prompts
from tests.support.scripted_engine import ScriptedTokenizer, make_model_config

CONFIG = ResolvedConfig(
    model_path="",
    served_model_names=("m",),
    model=make_model_config(),
    dtype="float32",
    scheduler=SchedulerLimits(max_num_batched_tokens=2048, max_num_seqs=8, max_model_len=4096),
    cache=CacheLimits(),
)


class WatchedTokenizer(ScriptedTokenizer):
    """Notes in which thread it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def encode(self, text: str) -> list[int]:
        self.threads.append(threading.get_ident())
        return super().encode(text)


def read(
    prompt: str | list[str | int | list[int]], tokenizer: ScriptedTokenizer | None = None
) -> list[Prompt]:
    encoder = PromptEncoder(tokenizer or ScriptedTokenizer(), CONFIG.scheduler.max_model_len)
    try:
        return asyncio.run(read_prompts(prompt, encoder, CONFIG, 1))
    finally:
        encoder.close()


def test_texts_keep_their_order() -> None:
    assert read(["ab", "c"]) == [Prompt([97, 98], "ab"), Prompt([99], "c")]
    assert read([[1, 2], [3]]) == [Prompt([1, 2], None), Prompt([3], None)]


@pytest.mark.parametrize("texts", [["x" * 1000] * 100, ["x"] * 1000], ids=["long", "many"])
def test_perf_001_many_short_texts_leave_the_loop_free(texts: list[str | int | list[int]]) -> None:
    tokenizer = WatchedTokenizer()
    assert len(read(texts, tokenizer)) == len(texts)
    assert len(tokenizer.threads) == len(texts)
    assert len(set(tokenizer.threads)) == 1 and threading.get_ident() not in tokenizer.threads


def test_a_few_short_texts_are_not_worth_a_thread() -> None:
    tokenizer = WatchedTokenizer()
    read(["ab", "c"], tokenizer)
    assert set(tokenizer.threads) == {threading.get_ident()}


@pytest.mark.parametrize("num_before", [1, 1000])
def test_the_text_at_fault_is_named_and_ends_the_work(num_before: int) -> None:
    tokenizer = WatchedTokenizer()
    with pytest.raises(InvalidRequestError, match=rf"prompt\[{num_before}\] is empty"):
        read([*["x"] * num_before, "", *["x"] * 100], tokenizer)
    assert len(tokenizer.threads) == num_before + 1
    with pytest.raises(ContextLengthError):
        read([*["x"] * num_before, "x" * 100_000])


def test_scores_of_a_prompt_are_bounded() -> None:
    check_num_scores(SamplingParams(), 10**9, "logprobs")
    check_num_scores(SamplingParams(prompt_logprobs=0), MAX_PROMPT_SCORES, "logprobs")
    for sampling, num_tokens in (
        (SamplingParams(prompt_logprobs=0), MAX_PROMPT_SCORES + 1),
        (SamplingParams(prompt_logprobs=20), MAX_PROMPT_SCORES // 21 + 1),
        (SamplingParams(prompt_logprobs=1, n=5), MAX_PROMPT_SCORES // 10 + 1),
    ):
        with pytest.raises(InvalidRequestError, match="fewer alternatives") as caught:
            check_num_scores(sampling, num_tokens, "prompt_logprobs")
        assert caught.value.param == "prompt_logprobs"
