"""Who begins from the prefix cache drafts as if everything had been computed: the same drafts, so the same counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qanat import LLM, SamplingParams
from qanat.core.speculation import SpeculationCounts
from qanat.entrypoints.results import Generation
from tests.support.providers import built_kernels  # noqa: F401

MTP = {"method": "mtp", "num_speculative_tokens": 3, "adaptive": False}
PARAMS = SamplingParams(max_tokens=40, temperature=0.7, seed=3, logprobs=1, ignore_eos=True)
HISTORY = [
    {"role": "user", "content": "Sort these words: pear apple fig."},
    {"role": "assistant", "content": "apple fig pear"},
    {"role": "user", "content": "What is 417 + 385?"},
    {"role": "assistant", "content": "802"},
] * 4
TURN = [*HISTORY, {"role": "user", "content": "Sort these words: plum kiwi lemon cherry."}]

Asked = tuple[str, tuple[int, int, tuple[int, ...]], int]


def open_model(folder: Path, **options: Any) -> LLM:
    settings = {"max_model_len": 1024, "max_num_seqs": 4, "num_threads": 1, "speculative_config": MTP}
    return LLM(str(folder), **(settings | options))


def ask(model: LLM, prompt: list[Any] | str, params: SamplingParams = PARAMS) -> tuple[Generation, Asked]:
    """An answer, and its bits, what became of its drafts, and how many tokens were found."""
    before = model.speculation_counts()
    is_chat = isinstance(prompt, list) and isinstance(prompt[0], dict)
    [reply] = model.chat([prompt], params) if is_chat else model.generate([prompt], params)
    said = repr([(one.token_ids, one.logprobs) for one in reply.outputs])
    return reply, (said, _since(before, model.speculation_counts()), reply.num_cached_tokens)


def _since(before: SpeculationCounts, after: SpeculationCounts) -> tuple[int, int, tuple[int, ...]]:
    per_position = zip(before.accepted_per_position, after.accepted_per_position, strict=True)
    return (
        after.num_draft_tokens - before.num_draft_tokens,
        after.num_accepted_tokens - before.num_accepted_tokens,
        tuple(late - early for early, late in per_position),
    )


@pytest.mark.parametrize("cache", ["auto", "int8"])
@pytest.mark.parametrize("is_overlapped", [False, True])
def test_a_hit_has_the_acceptance_of_a_cold_start(
    demo_model: Path, tmp_path: Path, cache: str, is_overlapped: bool
) -> None:
    settings = {"kv_cache_dtype": cache, "async_scheduling": is_overlapped}
    with open_model(demo_model, prefix_cache_dir=str(tmp_path / "kept"), **settings) as model:
        first, cold = ask(model, TURN)
        _, warm = ask(model, TURN)
        answer = [*first.prompt_token_ids, *first.outputs[0].token_ids]
        _, further = ask(model, answer)
    assert (warm[:2], cold[2]) == (cold[:2], 0) and warm[2] >= 128
    assert cold[1][1] > 0.4 * cold[1][0], "else equal counts would say little"
    with open_model(demo_model, prefix_cache_dir=str(tmp_path / "kept"), **settings) as model:
        _, restarted = ask(model, TURN)
    assert restarted == warm, "what is kept on disk is as good"
    with open_model(demo_model, **settings) as model:
        _, alone = ask(model, answer)
    assert further[:2] == alone[:2] and further[2] > warm[2]


def test_blocks_that_nobody_has_drafted_on_are_not_read(demo_model: Path) -> None:
    """A request that ends with its first token never drafts, and its blocks may hold what others have drafted on."""
    with open_model(demo_model) as model:
        _, cold = ask(model, TURN)
    with open_model(demo_model) as model:
        ask(model, [{"role": "user", "content": "Hello! " * 60}])  # leaves entries in blocks that others get
        model.reset_prefix_cache()
        ask(model, TURN, SamplingParams(max_tokens=1))
        _, warm = ask(model, TURN)
    assert warm[0] == cold[0] and warm[2] > 0
    assert warm[1][1] > 0.4 * warm[1][0]
