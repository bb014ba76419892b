"""Log-probabilities of prompts, and prompts at the window's edge."""

from __future__ import annotations

import math
from typing import Any

from qanat.deploy.verify.check import COMPLETIONS, Context, Skip, check
from qanat.deploy.verify.replies import Reply
from qanat.deploy.verify.service import Fault, shown

SENTENCE = "The quick brown fox jumps over the lazy dog."
DIGITS = "1234567890"
"""A token each in the tokenizers of Qwen, which split numbers into digits."""
NUM_TRIAL_DIGITS = 40
MIN_PREFILL_TOKENS_PER_S = 500
"""A prompt at the edge may take as long as this speed needs, if --timeout-s is shorter."""


@check("echo_logprobs", "prompt scored with echo", needs=("model", "completion"))
async def echo_logprobs(context: Context) -> str:
    """What lm_eval sends for multiple choice: echo, logprobs 1, max_tokens 1."""
    body = context.completion(SENTENCE, 1, echo=True, logprobs=1)
    reply = await _scored(context, body)
    logprobs = reply.choice.logprobs
    values = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    if not isinstance(values, list):
        raise Fault("no_prompt_logprobs", "no token_logprobs in the answer")
    num_tokens = reply.count("prompt_tokens") + reply.count("completion_tokens")
    if len(values) != num_tokens:
        raise Fault("wrong_prompt_logprobs", f"{len(values)} values for {num_tokens} tokens")
    if not reply.choice.text.startswith(SENTENCE):
        raise Fault(
            "wrong_prompt_logprobs",
            f'the text does not begin with the prompt: "{shown(reply.choice.text, 60)}"',
        )
    # The first token follows nothing; engines give null or leave it at zero.
    if not all(_is_logprob(value) for value in values[1:]):
        raise Fault("wrong_prompt_logprobs", f"not all are log-probabilities: {shown(str(values), 80)}")
    return f"{len(values)} values, mean {sum(values[1:]) / len(values[1:]):.2f}"


@check("prompt_logprobs", "prompt_logprobs", needs=("model", "completion"))
async def prompt_logprobs(context: Context) -> str:
    """The field that vLLM has for it."""
    reply = await _scored(context, context.completion(SENTENCE, 1, prompt_logprobs=1))
    values = reply.choice.prompt_logprobs
    if not isinstance(values, list):
        raise Fault("no_prompt_logprobs", "no prompt_logprobs in the answer")
    if len(values) != reply.count("prompt_tokens"):
        raise Fault(
            "wrong_prompt_logprobs", f"{len(values)} entries for {reply.count('prompt_tokens')} tokens"
        )
    for entry in values[1:]:
        scores = [one.get("logprob") for one in entry.values()] if isinstance(entry, dict) else []
        if not scores or not all(_is_logprob(score) for score in scores):
            raise Fault("wrong_prompt_logprobs", f"an entry is {shown(str(entry), 60)}")
    return f"{len(values)} entries"


async def _scored(context: Context, body: dict[str, Any]) -> Reply:
    try:
        return await context.service.reply(COMPLETIONS, body)
    except Fault as fault:
        if fault.symptom == "refused":
            raise Fault("no_prompt_logprobs", fault.seen, fault.status) from None
        raise


def _is_logprob(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value <= 0


@check("window", "prompt at the window's edge", needs=("model", "completion"))
async def window(context: Context) -> str:
    """A prompt that fills the window but for one token, then one that is a token too long."""
    length = context.max_model_len
    if not length:
        raise Skip("the window is not known: --max-model-len")
    timeout_s = max(context.settings.timeout_s, length / MIN_PREFILL_TOKENS_PER_S)
    num_extra = await _num_extra_tokens(context)
    num_digits = length - 1 - num_extra
    if num_digits < 1:
        raise Skip(f"a window of {length} tokens is too short for it")
    try:
        fitting = context.completion(_digits(num_digits), 1)
        reply = await context.service.reply(COMPLETIONS, fitting, timeout_s=timeout_s)
    except Fault as fault:
        if fault.symptom in ("refused", "key_refused"):
            raise Fault("window_refused", fault.seen, fault.status) from None
        raise
    if reply.count("prompt_tokens") != length - 1:
        raise Fault("window_cut", f"{reply.count('prompt_tokens')} of {length - 1} prompt tokens were read")
    await _expect_refusal(context, num_digits + 1, length, timeout_s)
    return f"{length - 1} + 1 tokens in {reply.seconds:.1f} s, one more is refused"


async def _num_extra_tokens(context: Context) -> int:
    """Tokens that the server adds to a prompt by itself."""
    trial = await context.service.reply(COMPLETIONS, context.completion(_digits(NUM_TRIAL_DIGITS), 1))
    num_extra = trial.count("prompt_tokens") - NUM_TRIAL_DIGITS
    if not 0 <= num_extra < 8:
        raise Skip(
            f"{NUM_TRIAL_DIGITS} digits are {NUM_TRIAL_DIGITS + num_extra} tokens: no tokenizer of Qwen"
        )
    return num_extra


async def _expect_refusal(context: Context, num_digits: int, length: int, timeout_s: float) -> None:
    try:
        body = context.completion(_digits(num_digits), 1)
        reply = await context.service.reply(COMPLETIONS, body, timeout_s=timeout_s)
    except Fault as fault:
        if fault.status >= 500:
            raise Fault("mistake_as_server_error", fault.seen, fault.status) from None
        if not 400 <= fault.status:
            raise
        if str(length) not in fault.seen.replace(",", ""):
            raise Fault("unclear_window_error", fault.seen, fault.status) from None
        return
    tokens = f"{reply.count('prompt_tokens')} + {reply.count('completion_tokens')}"
    raise Fault("window_not_kept", f"{tokens} tokens were accepted in a window of {length}")


def _digits(num_tokens: int) -> str:
    return (DIGITS * (num_tokens // len(DIGITS) + 1))[:num_tokens]
