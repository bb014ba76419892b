"""Bodies of the generation endpoints as types. Defaults of None mean: not given."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from qanat.core.errors import InvalidRequestError
from qanat.core.sampling_params import SamplingParams
from qanat.server.deadlines import TimeoutParts, check_timeout
from qanat.server.request_fields import ResponseFormat, ResumeField, StructuredOutputsField

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""OpenAI's words."""

DEFAULT_COMPLETION_TOKENS = 16
"""max_tokens of /v1/completions where the request names none, as in OpenAI's API."""

SAMPLING_FIELDS = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "seed",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
"""Fields that go to `SamplingParams` as they are, on both endpoints."""


class StreamOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a stream carries beside text.

    Attributes:
        include_usage: one more chunk, the last, with the token counts.
        continuous_usage_stats: the token counts so far in every chunk.
        include_obfuscation: accepted for OpenAI's clients; chunks are never padded.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What both endpoints share; the names and meanings of the sampling fields are `SamplingParams`'.

    Attributes:
        model: one of the served names; the first where it is absent.
        stream: answer with server-sent events.
        priority: lower runs first, under --scheduling-policy priority only.
        timeout: seconds until the answer must be complete, waiting included, or an object with bounds for parts of
            that; past them the request ends with an error.
        cache_salt: keeps this request's cached prefixes apart from those of others.
        request_id: part of the answer's id.
        return_tokens_as_token_ids: tokens in logprobs read "token_id:N" in place of their text.
        return_token_ids: answer with the token ids of prompt and output too.
        response_format, structured_outputs: the form that the answer must have; see `qanat.server.output_form`.
        guided_json, guided_regex, guided_choice, guided_grammar, structural_tag: older words for it.
        guided_whitespace_pattern: of guided_json.
        resume: go on with the output of an earlier request; see `qanat.server.resume`.
        guided_decoding_backend: names a library; accepted and without effect, as the server chooses it.
    """

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    seed: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    priority: int = 0
    timeout: float | TimeoutParts | None = None
    cache_salt: str = ""
    request_id: str = ""
    return_tokens_as_token_ids: bool = False
    return_token_ids: bool = False
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputsField | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structural_tag: str | dict[str, Any] | None = None
    guided_whitespace_pattern: str | None = None
    guided_decoding_backend: str | None = None
    resume: ResumeField | None = None

    @property
    def has_usage_chunk(self) -> bool:
        """True if the stream is to end with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    @property
    def has_running_usage(self) -> bool:
        """True if every chunk of the stream is to carry the token counts so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats is True

    def check_shared(self) -> None:
        """Checks rules between fields.

        Raises:
            InvalidRequestError: naming the field.
        """
        check_timeout(self.timeout)
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError(
                "stream_options is only allowed with stream true.", param="stream_options"
            )
        if self.stream and self.prompt_logprobs is not None:
            raise InvalidRequestError(
                "prompt_logprobs is only offered without stream.", param="prompt_logprobs"
            )

    def sampling_values(self) -> dict[str, Any]:
        """The sampling settings that the request names."""
        named = {name: getattr(self, name) for name in SAMPLING_FIELDS}
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        return {name: value for name, value in {**named, "stop": stop}.items() if value is not None}


class CompletionRequest(GenerationRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Body of /v1/completions.

    Attributes:
        prompt: a text, a list of texts, a list of token ids, or a list of such lists.
        echo: begin each choice's text, and its logprobs, with the prompt.
        logprobs: alternatives to list per token.
    """

    prompt: str | list[str | int | list[int]]
    echo: bool = False
    logprobs: int | None = None

    def sampling(self, defaults: dict[str, Any]) -> SamplingParams:
        """Settings for the engine: the request's over `defaults` over neutral ones.

        Raises:
            InvalidRequestError: a value is out of range; `param` names it.
        """
        self.check_shared()
        wanted = {**defaults, **self.sampling_values()}
        wanted["max_tokens"] = DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        wanted["logprobs"] = self.logprobs
        wanted["prompt_logprobs"] = self.prompt_logprobs
        if self.echo and self.logprobs is not None:
            wanted["prompt_logprobs"] = max(self.logprobs, self.prompt_logprobs or 0)
        return SamplingParams(**wanted)


class ChatRequest(GenerationRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Body of /v1/chat/completions.

    Attributes:
        messages: the conversation; checked by `qanat.server.messages`.
        max_completion_tokens: the newer name of max_tokens; wins where both are given.
        logprobs: report the log-probabilities of content tokens.
        top_logprobs: alternatives to list per token; needs logprobs.
        tools: functions that the model may call, rendered by the chat template.
        tool_choice: whether the model may or must call, and what; see `qanat.server.tools.choice`. "none" leaves the
            tools out of the prompt, and calls in the text.
        parallel_tool_calls: false ends the reply where a second call begins.
        chat_template_kwargs: variables for the template, such as enable_thinking.
        reasoning_effort: "none" switches thinking off; the models know no degrees, so that the others change nothing.
        include_reasoning: send the reasoning at all.
        add_generation_prompt: end the prompt with what the template puts before a reply; true by default.
        continue_final_message: go on within the final message, which is the assistant's.
    """

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: ReasoningEffort | None = None
    include_reasoning: bool = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    def sampling(self, defaults: dict[str, Any]) -> SamplingParams:
        """Settings for the engine: the request's over `defaults` over neutral ones.

        Raises:
            InvalidRequestError: a value is out of range; `param` names it.
        """
        self.check_shared()
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs true.", param="top_logprobs")
        wanted = {**defaults, **self.sampling_values(), "prompt_logprobs": self.prompt_logprobs}
        is_newer_given = self.max_completion_tokens is not None
        wanted["max_tokens"] = self.max_completion_tokens if is_newer_given else self.max_tokens
        if self.logprobs:
            wanted["logprobs"] = self.top_logprobs or 0
        try:
            return SamplingParams(**wanted)
        except InvalidRequestError as error:
            raise _in_chat_words(error, is_newer_given) from None


def _in_chat_words(error: InvalidRequestError, is_newer_given: bool) -> InvalidRequestError:
    """Names the field as the chat request spells it."""
    spelled = {"logprobs": "top_logprobs"}
    if is_newer_given:
        spelled["max_tokens"] = "max_completion_tokens"
    name = spelled.get(error.param or "")
    if name is None:
        return error
    return InvalidRequestError(error.message.replace(str(error.param), name), param=name)
