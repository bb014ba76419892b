"""The prefill leg of a pair: the prompt as it is, and of the output one token that nobody reads.

Whatever says how the output is to be would at best be computed for nothing there, and at worst be refused (a
`min_tokens` above its one token) or end the leg before the cache is handed over (a stop token). The decode leg gets
all of it unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from qanat.router.access_log import Record
from qanat.router.body_edit import withdrawn
from qanat.router.http.errors import UpstreamBroken
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.lost_guard import LostGuard
from qanat.router.model import Call, Endpoint
from qanat.router.pool import Pool
from qanat.router.resume_qanat import is_prompt_list
from qanat.router.retry import Refusal
from qanat.router.road import request_headers

_OUTPUT_FIELDS = (
    "stream_options",
    "n",
    "best_of",
    "use_beam_search",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "echo",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structural_tag",
    "guided_whitespace_pattern",
    "guided_decoding_backend",
    "logits_processors",
    "bad_words",
    "allowed_token_ids",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "parallel_tool_calls",
)


def prefill_changes(fields: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a request one for the prompt alone.

    Args:
        fields: of the request.
        params: kv_transfer_params of the leg.
    """
    changes: dict[str, Any] = {name: withdrawn() for name in _OUTPUT_FIELDS if name in fields}
    changes.update(stream=False, max_tokens=1, min_tokens=1, kv_transfer_params=dict(params))
    if "messages" in fields or "max_completion_tokens" in fields:
        changes["max_completion_tokens"] = 1
    # The tools stay, as they are part of the prompt; that a call is required would hold the one token to a grammar.
    if fields.get("tool_choice") not in (None, "auto", "none"):
        changes["tool_choice"] = "none"
    return changes


def why_whole(call: Call) -> str:
    """Why a request is served by the decoder alone; empty if a pair can serve it.

    A pair hands over the cache of one prompt to one reader, and the decoder does not see the prompt's scores.
    """
    fields = call.fields
    if fields is None:
        return "its body is no JSON object"
    if call.num_choices > 1 or (fields.get("best_of") or 1) > 1 or fields.get("use_beam_search"):
        return "several choices share one prompt"
    prompt = fields.get("prompt")
    if is_prompt_list(prompt) and len(prompt) > 1:
        return "it has several prompts"
    has_scores = fields.get("logprobs") is not None and fields.get("echo")
    if fields.get("prompt_logprobs") is not None or has_scores:
        return "the prompt's log-probabilities are asked for"
    if fields.get("max_tokens") == 0:
        return "no output is asked for"
    return ""


class PrefillAnswer(msgspec.Struct):
    """What is read of a prefiller's answer."""

    kv_transfer_params: dict[str, Any] | None = None
    choices: list[dict[str, Any]] = []

    @property
    def is_finished(self) -> bool:
        """The model ended its output at the first token, so that there is nothing to decode."""
        reason = self.choices[0].get("finish_reason") if self.choices else None
        return reason not in (None, "length")


async def ask_prefiller(
    upstream: Upstream,
    pool: Pool,
    endpoint: Endpoint,
    call: Call,
    body: bytes,
    record: Record,
    request_id: str,
    timeout_s: float,
) -> tuple[bytes, PrefillAnswer]:
    """Has a prefiller compute the prompt; the call is counted on it meanwhile.

    Returns:
        Its answer, and what is read of it.

    Raises:
        Refusal: it answered with an error.
        UpstreamError: it did not answer, or not with JSON.
    """
    headers = request_headers(call, record, request_id)
    timeouts = Timeouts(first_byte_s=timeout_s, idle_s=timeout_s)
    with pool.lease(endpoint, call) as lease, LostGuard(lease):
        async with upstream.request(endpoint, "POST", call.target, headers, body, timeouts) as answer:
            content = await answer.read()
            if answer.status != 200:
                raise Refusal(endpoint.name, answer.status, answer.headers, content)
            lease.tokens(1)
    try:
        read = msgspec.json.decode(content, type=PrefillAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = f"endpoint {endpoint.name} answered the prefill leg with something that is no completion"
        raise UpstreamBroken(message, endpoint.name, is_answered=True) from None
    pool.succeeded(endpoint)
    return content, read
