"""Request fields that Qanat does not act on: which are harmless, and why the others are refused.

A field that would change the answer is never dropped in silence. Neutral values are accepted everywhere, as clients
send their defaults; null counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qanat.core.errors import InvalidRequestError

IGNORED_FIELDS = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "session_id",
        "verbosity",
        "add_special_tokens",
    }
)
"""Fields of OpenAI's and vLLM's clients that say nothing about the tokens to generate here."""


@dataclass(frozen=True)
class RefusedField:
    """A field whose meaning is not offered.

    Attributes:
        is_neutral: tells values that ask for nothing.
        why: the reason, with the way round it where there is one.
    """

    is_neutral: Callable[[Any], bool]
    why: str


def _never(_: Any) -> bool:
    return False


def _is(*values: Any) -> Callable[[Any], bool]:
    def is_one_of(value: Any) -> bool:
        return any(type(value) is type(neutral) and value == neutral for neutral in values)

    return is_one_of


_NO_BEAMS = "Beam search is not offered; use n with a temperature."

_TEMPLATE_VARIABLE = (
    "It is a variable of the template: chat_template_kwargs takes enable_thinking and the like."
)

_NO_BUDGET = "Not in this version; chat_template_kwargs.enable_thinking switches thinking off."

_FORM = "Say it in structured_outputs: its fields are json, regex, choice, grammar and structural_tag."

SHARED_REFUSALS: dict[str, RefusedField] = {
    "best_of": RefusedField(_is(1), "Choices are not ranked; use n and rank them by their logprobs."),
    "use_beam_search": RefusedField(_is(False), _NO_BEAMS),
    "length_penalty": RefusedField(_is(1, 1.0), _NO_BEAMS),
    "early_stopping": RefusedField(_is(False), _NO_BEAMS),
    "truncate_prompt_tokens": RefusedField(_never, "Prompts are never cut; shorten the prompt."),
    "truncation_side": RefusedField(_never, "Prompts are never cut; shorten the prompt."),
    "prompt_embeds": RefusedField(_never, "Embeddings as input are not offered; send text or token ids."),
    "logits_processors": RefusedField(_is([]), "Code from requests is not run; use logit_bias."),
    "logprob_token_ids": RefusedField(_never, "Use logprobs, which lists the most likely tokens."),
    "kv_transfer_params": RefusedField(_never, "Prefill-decode disaggregation is not in this version."),
    "repetition_detection": RefusedField(_never, "Use repetition_penalty."),
    "return_prompt_text": RefusedField(_is(False), "Use return_token_ids and /detokenize."),
    "return_token_offsets": RefusedField(
        _is(False), "Use logprobs of /v1/completions, which has each token's text_offset."
    ),
    "stream_interval": RefusedField(_is(1), "Chunks come as tokens do."),
    **dict.fromkeys(("regex", "json_schema", "grammar", "ebnf"), RefusedField(_never, _FORM)),
    "extra_body": RefusedField(_is({}), "OpenAI's clients send its fields beside the others; do likewise."),
    "vllm_xargs": RefusedField(_is({}), "Arguments for plug-ins have no meaning here."),
}
"""Refused on both generation endpoints."""

COMPLETION_REFUSALS: dict[str, RefusedField] = {
    **SHARED_REFUSALS,
    "suffix": RefusedField(_is(""), "Filling in the middle is not offered; put the suffix into the prompt."),
}
"""Refused on /v1/completions."""

CHAT_REFUSALS: dict[str, RefusedField] = {
    **SHARED_REFUSALS,
    "functions": RefusedField(_is([]), "Use tools, which replaced it."),
    "function_call": RefusedField(_is("none"), "Use tools and tool_choice, which replaced it."),
    "audio": RefusedField(_never, "Audio is not offered."),
    "modalities": RefusedField(_is(["text"]), "Only text is generated."),
    "prediction": RefusedField(_never, "Predicted outputs are not offered."),
    "moderation": RefusedField(_never, "Nothing is moderated here."),
    "reasoning": RefusedField(_never, "Use reasoning_effort, or chat_template_kwargs.enable_thinking."),
    "separate_reasoning": RefusedField(
        _is(True), "The server's --reasoning-parser none leaves reasoning in the content."
    ),
    "web_search_options": RefusedField(_never, "There is no web search; give the model a tool."),
    "chat_template": RefusedField(
        _never, "Templates from requests are not run; the server's is set with --chat-template."
    ),
    "documents": RefusedField(_is([]), "Put documents into a message."),
    "mm_processor_kwargs": RefusedField(_is({}), "Images, audio and video are not in this version."),
    "media_io_kwargs": RefusedField(_is({}), "Images, audio and video are not in this version."),
    "echo": RefusedField(_is(False), "Echo is offered on /v1/completions only."),
    **dict.fromkeys(
        ("enable_thinking", "preserve_thinking", "thinking"), RefusedField(_never, _TEMPLATE_VARIABLE)
    ),
    **dict.fromkeys(("thinking_token_budget", "thinking_budget"), RefusedField(_never, _NO_BUDGET)),
}
"""Refused on /v1/chat/completions."""


def drop_unused_fields(body: dict[str, Any], refusals: Mapping[str, RefusedField]) -> dict[str, Any]:
    """The body without nulls, ignored fields and neutral values of refused ones.

    Raises:
        InvalidRequestError: a refused field asks for something; `param` names it.
    """
    kept: dict[str, Any] = {}
    for name, value in body.items():
        if value is None or name in IGNORED_FIELDS:
            continue
        refusal = refusals.get(name)
        if refusal is None:
            kept[name] = value
        elif not refusal.is_neutral(value):
            raise InvalidRequestError(f"{name} is not supported: {refusal.why}", param=name)
    return kept
