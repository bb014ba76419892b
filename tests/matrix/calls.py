"""Hypothesis strategies for calls: prompts that share beginnings, every sampling setting, and fates."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.matrix.models import VOCAB_SIZE
from tests.matrix.scenario import Call

LENGTHS = (1, 2, 7, 15, 16, 17, 31, 40, 63, 64, 65, 100, 127, 128, 129, 160)
COMMON = (0, 0, 16, 64, 64, 70, 128, 130, 192)
FORMS: list[dict[str, Any]] = [
    {"regex": "[a-f]{3,9}( and [0-9]{1,4})*"},
    {"choice": ["yes", "no", "not at all"]},
    {"json": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """One call."""

    def choose(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    has_fate = choose(False, False, False, True)
    return Call(
        gap=choose(0, 0, 1, 2, 5, 12, 40),
        stem=choose(0, 0, 1),
        num_common=choose(*COMMON),
        num_own=choose(*LENGTHS),
        period=choose(0, 0, 1, 3, 8),
        follows=choose(0, 0, 0, 1, 2),
        sampling=draw(samplings()),
        num_prior=choose(1, 3, 20) if choose(False, False, False, True) else 0,
        priority=choose(0, 0, 1, -1),
        boundaries=choose([], [], [0.5], [0.3, 0.9]),
        preempt_after=choose([], [], [], [1], [3], [2, 9], [6, 7, 20]),
        abort_after=choose(0, 1, 4, 15) if has_fate else None,
    )


@st.composite
def samplings(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of SamplingParams; those that are rarely used are rare here."""

    def choose(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    def rarely(*values: Any) -> Any:
        return choose(None, None, None, None, None, *values)

    max_tokens = choose(12, 1, 2, 6, 9, 20, 20, 33, 33, 70, 140)
    fields: dict[str, Any] = {
        "max_tokens": max_tokens,
        # The noise alone chooses at 100, and drafts are drawn with the same: nearly all of them are right.
        "temperature": choose(0.0, 0.7, 1.0, 5.0, 20.0, 100.0),
        "seed": draw(st.integers(0, 3)),
        "ignore_eos": choose(True, True, False),
        "logprobs": choose(1, 1, None, 0, 5),
        "n": choose(1, 1, 1, 2, 3),
        "top_k": rarely(1, 5, 40),
        "top_p": rarely(0.3, 0.9),
        "min_p": rarely(0.05, 0.4),
        "presence_penalty": rarely(1.5, -1.0),
        "frequency_penalty": rarely(0.8, -0.5),
        "repetition_penalty": rarely(1.4, 0.7),
        "logit_bias": rarely({"7": 4.0, "11": -100.0}, {"40": 60.0}),
        "allowed_token_ids": rarely(list(range(20, 24)), list(range(50, VOCAB_SIZE, 7))),
        "bad_words_token_ids": rarely([[21], [22, 23]]),
        "stop_token_ids": rarely(list(range(40, 70)), [22]),
        "stop": rarely(["a"], ["e", "th"]),
        "min_tokens": rarely(min(5, max_tokens), min(18, max_tokens)),
        "prompt_logprobs": choose(None, None, None, None, None, None, None, 0, 2),
        "structured_outputs": choose(*[None] * 20, *FORMS),  # to compile one takes as long as a whole answer
        "include_stop_str_in_output": rarely(True),
    }
    if fields["structured_outputs"] is not None:
        fields["ignore_eos"] = None  # whose output has a form ends with it
    return {name: value for name, value in fields.items() if value is not None}
