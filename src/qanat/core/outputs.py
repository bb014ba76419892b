"""What the engine core reports after each step; text is made from it at the front end."""

from __future__ import annotations

import msgspec

from qanat.core.batch import TokenLogprobs
from qanat.core.prefix_report import PrefixReport
from qanat.core.request import FinishReason


class RequestTiming(msgspec.Struct, frozen=True):
    """Seconds, on one host's monotonic clock.

    Attributes:
        queue_s: from arrival to the first scheduled step.
        prefill_s: from the first scheduled step to the first output token.
        decode_s: from the first to the last output token.
    """

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class RequestOutput(msgspec.Struct, kw_only=True, frozen=True):
    """News of one request. A request's last output, and only that, has a `finish_reason`.

    Attributes:
        request_id: whose.
        new_token_ids: tokens since the last output.
        logprobs: one per new token if asked for.
        prompt_logprobs: entries of prompt positions since the last output if asked for; the first prompt token
            has none.
        finish_reason: set exactly once.
        stop_token_id: the token that ended it, when one did.
        error_code: stable code of the error, with finish_reason ERROR (see qanat.core.errors).
        error_message: what went wrong and what to change.
        error_param: what the error is about, where it is a field of the request.
        retry_after_s: with a refusal, whole seconds after which the request may be taken; 0 if nothing is known.
        num_cached_tokens: prompt tokens supplied by the prefix cache.
        timing: set with the first new token and with the finish reason.
        num_drafted, num_accepted: drafts verified for it so far, and those of them that were right.
        prefix: with `timing`, what the prefix cache did for it.
    """

    request_id: str
    new_token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: list[TokenLogprobs] = []
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error_code: str = ""
    error_message: str = ""
    error_param: str = ""
    retry_after_s: int = 0
    num_cached_tokens: int = 0
    timing: RequestTiming | None = None
    num_drafted: int = 0
    num_accepted: int = 0
    prefix: PrefixReport | None = None
