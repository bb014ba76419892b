"""How one request wants its tokens chosen and when it wants to stop."""

from __future__ import annotations

import functools
import math

import msgspec

from qanat.core.errors import InvalidRequestError
from qanat.core.structured_outputs import StructuredOutputsParams

MAX_LOGPROBS = 20
MAX_LIST_LENGTHS = {
    "stop": 64,
    "bad_words": 256,
    "bad_words_token_ids": 1024,
    "stop_token_ids": 1024,
    "logit_bias": 1024,
}
"""Most entries of each field: every step looks at all of them."""
MAX_ALLOWED_ENTRIES = 2**18
"""Most entries of `allowed_token_ids` for all choices of a prompt together: each choice carries its own.

More than a vocabulary has, and few enough for the engine to read between two steps.
"""
MAX_TEXT_CHARS = 20_000
"""Most characters of all stop texts together, and of all bad words."""


class SamplingParams(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Sampling settings of one request; the fields and defaults are those of vLLM's class of the same name.

    Attributes:
        n: sequences to generate for the prompt; they differ in their choice index (design rule R6).
        temperature: divides the logits; 0 means the most likely token.
        top_p: smallest set of tokens whose probabilities reach this sum, in (0, 1].
        top_k: number of most likely tokens kept; 0 or -1 keeps all.
        min_p: keeps tokens with at least this share of the most likely token's probability, in [0, 1].
        presence_penalty: subtracted from tokens already in the output, in [-2, 2].
        frequency_penalty: subtracted once per occurrence in the output, in [-2, 2].
        repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or output, > 0.
        logit_bias: added to the logits of these token ids, each in [-100, 100].
        allowed_token_ids: only these tokens may be chosen; kept without repetitions.
        bad_words: texts that may not be produced.
        bad_words_token_ids: the same as token sequences; filled in by the front end's tokenizer.
        stop: texts that end the output.
        stop_token_ids: tokens that end the output.
        include_stop_str_in_output: keep the matched stop text in the output.
        ignore_eos: go on after the model's end-of-sequence tokens.
        min_tokens: no stop of any kind before so many output tokens.
        max_tokens: output bound; None means as many as fit; 0 only evaluates the prompt.
        seed: noise seed; None gets a random one at admission.
        logprobs: how many alternatives to report per output token; None reports nothing.
        prompt_logprobs: the same for prompt tokens.
        skip_special_tokens: leave special tokens out of the text.
        spaces_between_special_tokens: accepted for compatibility; byte-level BPE inserts no spaces.
        detokenize: produce text at all.
        structured_outputs: the form that the output must have.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    bad_words_token_ids: list[list[int]] = []
    stop: list[str] = []
    stop_token_ids: list[int] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    max_tokens: int | None = 16
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    detokenize: bool = True
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        """Checks every type and range. One stop text may be given in place of a list.

        Raises:
            InvalidRequestError: with the field's name in `param`.
        """
        for name in ("stop", "bad_words", "stop_token_ids", "bad_words_token_ids"):
            value = getattr(self, name)
            if value is None or isinstance(value, str):
                msgspec.structs.force_setattr(self, name, [] if value is None else [value])
        _check_types(self)
        _check_range("n", self.n, 1, 128)
        _check_range("temperature", self.temperature, 0.0, 100.0)
        _check_range("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _check_range("top_k", self.top_k, -1, 2**31 - 1)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_range("repetition_penalty", self.repetition_penalty, 0.0, 100.0, low_open=True)
        _check_range("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None:
            _check_range("max_tokens", self.max_tokens, 0, 2**31 - 1)
            if self.min_tokens > self.max_tokens:
                raise InvalidRequestError(
                    f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens}).",
                    param="min_tokens",
                )
        if self.seed is not None:
            _check_range("seed", self.seed, -(2**63), 2**64 - 1)
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                _check_range(name, value, 0, MAX_LOGPROBS)
        for token_id, bias in (self.logit_bias or {}).items():
            _check_range(f"logit_bias[{token_id}]", bias, -100.0, 100.0, param="logit_bias")
        if self.allowed_token_ids is not None:
            allowed = _checked_allowed(self.allowed_token_ids, self.n)
            msgspec.structs.force_setattr(self, "allowed_token_ids", allowed)
        for name, bound in MAX_LIST_LENGTHS.items():
            if len(getattr(self, name) or ()) > bound:
                raise InvalidRequestError(f"{name} may have at most {bound} entries.", param=name)
        for name in ("stop", "bad_words"):
            texts = getattr(self, name)
            if any(not text.strip() if name == "bad_words" else not text for text in texts):
                raise InvalidRequestError(f"{name} must not contain an empty string.", param=name)
            if sum(map(len, texts)) > MAX_TEXT_CHARS:
                raise InvalidRequestError(
                    f"{name} may have at most {MAX_TEXT_CHARS} characters in all.", param=name
                )

    @property
    def is_greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature == 0.0

    def check_token_ids(self, vocab_size: int) -> None:
        """Refuses token ids outside the vocabulary.

        Raises:
            InvalidRequestError: naming the field and the first wrong id.
        """
        lists = {
            "logit_bias": list(self.logit_bias or {}),
            "allowed_token_ids": self.allowed_token_ids or [],
            "stop_token_ids": self.stop_token_ids,
        }
        for name, ids in lists.items():
            if ids and (min(ids) < 0 or max(ids) >= vocab_size):
                wrong = next(token_id for token_id in ids if not 0 <= token_id < vocab_size)
                raise InvalidRequestError(
                    f"{name} contains token id {wrong}; ids run from 0 to {vocab_size - 1}.", param=name
                )


def _check_types(params: SamplingParams) -> None:
    """Keyword arguments of Python callers are not checked by the struct itself."""
    for name, kind in _field_types():
        try:
            msgspec.convert(getattr(params, name), kind)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"{name}: {error}", param=name) from None


@functools.cache
def _field_types() -> tuple[tuple[str, object], ...]:
    return tuple((info.name, info.type) for info in msgspec.structs.fields(SamplingParams))


def _checked_allowed(token_ids: list[int], num_choices: int) -> list[int]:
    """The ids without repetitions; refuses none, and too many for all choices."""
    if not token_ids:
        raise InvalidRequestError(
            "allowed_token_ids must name at least one token.", param="allowed_token_ids"
        )
    allowed = list(dict.fromkeys(token_ids))
    if len(allowed) * num_choices > MAX_ALLOWED_ENTRIES:
        raise InvalidRequestError(
            f"allowed_token_ids may have at most {MAX_ALLOWED_ENTRIES} entries for all choices of a prompt; these are "
            f"{len(allowed)} for each of {num_choices}. Lower n or name fewer tokens.",
            param="allowed_token_ids",
        )
    return allowed


def _check_range(
    name: str, value: float, low: float, high: float, *, low_open: bool = False, param: str | None = None
) -> None:
    is_inside = math.isfinite(value) and value <= high and (value > low if low_open else value >= low)
    if not is_inside:
        bracket = "(" if low_open else "["
        raise InvalidRequestError(
            f"{name} must be in {bracket}{low}, {high}], got {value}.", param=param or name
        )
