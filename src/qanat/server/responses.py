"""Bodies of the generation endpoints' answers, as OpenAI's and vLLM's clients read them."""

from __future__ import annotations

from typing import Literal

import msgspec

from qanat.server.timing import Timing


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Of the prompt tokens, those that the prefix cache supplied."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """About the generated tokens.

    Attributes:
        reasoning_tokens: those of the thinking block, its tags included.
        accepted_prediction_tokens: drafts of speculative decoding that were right.
        rejected_prediction_tokens: drafts that were wrong; they are no part of the output.
    """

    reasoning_tokens: int
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """Token counts: prompts counted once each, outputs of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(msgspec.Struct, frozen=True):
    """One alternative."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """One generated token; `bytes` is what it added to the text, empty for a token that added nothing."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True, omit_defaults=True):
    """Logprobs of a chat choice or chunk: the tokens of the answer, and apart from them those of the reasoning."""

    content: list[TokenLogprob]
    reasoning: list[TokenLogprob] = []


class CalledFunction(msgspec.Struct, frozen=True):
    """What a tool call calls; the arguments are JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a whole reply."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class FunctionDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """News of a call's function: the name once, then pieces of the arguments."""

    arguments: str
    name: str | msgspec.UnsetType = msgspec.UNSET


class ToolCallChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """News of one call; id, type and name are in its first chunk only."""

    index: int
    function: FunctionDelta
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET


class ChatMessage(msgspec.Struct, frozen=True):
    """The reply; the reasoning stands under both names that clients use for it."""

    content: str | None
    reasoning: str | None = None
    reasoning_content: str | None = None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET


class PromptLogprob(msgspec.Struct, frozen=True):
    """vLLM's report about one candidate at a prompt position."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""By position and token id; None at the first position."""


class ChatChoice(msgspec.Struct, frozen=True):
    """One choice of a whole chat answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(msgspec.Struct, frozen=True):
    """A whole chat answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    timing: Timing | msgspec.UnsetType = msgspec.UNSET
    object: Literal["chat.completion"] = "chat.completion"


class ChatDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chunk adds to a choice; parts without news are left out."""

    role: str = ""
    content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning: str = ""
    reasoning_content: str = ""
    tool_calls: list[ToolCallChunk] = []


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """News of one choice."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatChunk(msgspec.Struct, frozen=True):
    """One event of a chat stream; token ids of the prompt stand in a choice's first one, if asked for."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    timing: Timing | msgspec.UnsetType = msgspec.UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Logprobs of a completion in the older format: one entry per token in every list."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    """One choice of a completion, or news of it in a stream."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: PromptLogprobs | None | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, frozen=True):
    """A whole completion, or one event of its stream."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None | msgspec.UnsetType = msgspec.UNSET
    timing: Timing | msgspec.UnsetType = msgspec.UNSET
    object: Literal["text_completion"] = "text_completion"
