"""The one stream of events that every reply is made from; a JSON reply is a fold over it."""

from __future__ import annotations

import msgspec

from qanat.core.outputs import RequestTiming
from qanat.core.prefix_report import PrefixReport
from qanat.core.request import FinishReason


class LogprobEntry(msgspec.Struct, frozen=True):
    """One token with its log-probability, ready for a client.

    Attributes:
        token_id: id.
        token: its text; bytes that are not whole characters show as replacement characters.
        token_bytes: its exact bytes.
        logprob: natural logarithm.
        rank: 1-based.
    """

    token_id: int
    token: str
    token_bytes: list[int]
    logprob: float
    rank: int


class PositionLogprobs(msgspec.Struct, frozen=True):
    """A chosen token and its alternatives, most likely first."""

    chosen: LogprobEntry
    top: list[LogprobEntry]


class GenerationEvent(msgspec.Struct, kw_only=True, frozen=True):
    """News of one choice of one generation.

    Attributes:
        index: choice index in [0, n).
        text: new text; never part of a stop string unless it is included, never half a character.
        token_ids: tokens behind `text` and behind text still held back.
        logprobs: one per new token, if asked for.
        prompt_logprobs: of the prompt, None for its first position; sent once, with the first event that follows
            the prompt, if asked for.
        finish_reason: set on the last event of this choice, and only there.
        stop_reason: the stop string or stop token id that ended it, None for eos or length.
        error_code: with finish_reason ERROR.
        error_message: with finish_reason ERROR.
        error_param: with finish_reason ERROR, where it is about a field of the request.
        num_prompt_tokens: length of the prompt.
        num_output_tokens: tokens of this choice so far.
        num_cached_tokens: prompt tokens supplied by the prefix cache.
        timing: with the first new token and with finish_reason.
        num_drafted, num_accepted: drafts verified for this choice so far, and those of them that were right.
        prefix: with `timing`, what the prefix cache did.
    """

    index: int = 0
    text: str = ""
    token_ids: list[int] = []
    logprobs: list[PositionLogprobs] = []
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error_code: str = ""
    error_message: str = ""
    error_param: str = ""
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    timing: RequestTiming | None = None
    num_drafted: int = 0
    num_accepted: int = 0
    prefix: PrefixReport | None = None
