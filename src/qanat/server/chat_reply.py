"""A chat answer in the making: reply events to chunks, and chunks to one answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qanat.server.endpoint import now_s
from qanat.server.events import (
    Finish,
    PromptScores,
    ReasoningDelta,
    ReplyEvent,
    ReplyStep,
    TextDelta,
    ToolCallDelta,
)
from qanat.server.logprobs import chat_tokens, vllm_prompt_logprobs
from qanat.server.requests import ChatRequest
from qanat.server.responses import (
    CalledFunction,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    FunctionDelta,
    PromptLogprobs,
    ToolCall,
    ToolCallChunk,
    Usage,
)
from qanat.server.tools.choice import ToolUse

TOOL_CALLS = "tool_calls"
"""The finish_reason of a turn that ends with calls."""


class ChatReply:
    """A chat answer in the making; see `Reply`.

    Args:
        request: what the client asked for.
        reply_id: the answer's id.
        model_name: as the answer says it.
        prompt_token_ids: the rendered prompt.
        use: of tools. A turn that was to call one certain function ends like any other, as OpenAI's does.
    """

    def __init__(
        self, request: ChatRequest, reply_id: str, model_name: str, prompt_token_ids: list[int], use: ToolUse
    ) -> None:
        self._request = request
        self._id = reply_id
        self._model_name = model_name
        self._prompt_token_ids = prompt_token_ids
        self._is_call_named = use.only is not None
        self._created = now_s()
        self._begun: set[int] = set()
        self._prompt_logprobs: PromptLogprobs | None = None

    def add(self, step: ReplyStep) -> list[ChatChunk]:
        """Takes the news of a choice; returns the chunks for them."""
        if step.is_prior and self._request.stream:
            self._begun.add(step.index)
            return []
        is_first = step.index not in self._begun
        chunks = [chunk for event in step.events for chunk in self._chunks_of(event)]
        return self._with_ids(chunks, step, is_first) if self._request.return_token_ids else chunks

    def end_chunks(self, usage: Usage) -> list[ChatChunk]:
        """The token counts, if they were asked for."""
        if not self._request.has_usage_chunk:
            return []
        return [ChatChunk(self._id, self._created, self._model_name, [], usage)]

    def whole(self, chunks: Sequence[ChatChunk], usage: Usage) -> ChatCompletion:
        """The answer in one piece: a fold over the chunks."""
        by_index: dict[int, list[ChatChunkChoice]] = {}
        for chunk in chunks:
            by_index.setdefault(chunk.choices[0].index, []).append(chunk.choices[0])
        choices = [self._fold(index, by_index[index]) for index in sorted(by_index)]
        return ChatCompletion(
            self._id,
            self._created,
            self._model_name,
            choices,
            usage,
            self._prompt_logprobs,
            self._prompt_token_ids if self._request.return_token_ids else msgspec.UNSET,
        )

    def _chunks_of(self, event: ReplyEvent) -> list[ChatChunk]:
        if isinstance(event, PromptScores):
            self._prompt_logprobs = self._prompt_logprobs or vllm_prompt_logprobs(event.positions)
            return []
        if isinstance(event, ReasoningDelta) and not self._request.include_reasoning:
            return []
        return [*self._opening(event.index), self._chunk(self._news(event))]

    def _with_ids(self, chunks: list[ChatChunk], step: ReplyStep, is_first: bool) -> list[ChatChunk]:
        """The same with the step's tokens in the last chunk, and with the prompt's in the choice's first one."""
        if not chunks:
            if not step.token_ids:
                return []
            chunks = [*self._opening(step.index), self._chunk(ChatChunkChoice(step.index, ChatDelta()))]
        choice = msgspec.structs.replace(chunks[-1].choices[0], token_ids=step.token_ids)
        chunks[-1] = msgspec.structs.replace(chunks[-1], choices=[choice])
        if is_first:
            chunks[0] = msgspec.structs.replace(chunks[0], prompt_token_ids=self._prompt_token_ids)
        return chunks

    def _news(self, event: TextDelta | ReasoningDelta | ToolCallDelta | Finish) -> ChatChunkChoice:
        if isinstance(event, Finish):
            is_tool_calls = event.is_tool_calls and not self._is_call_named
            reason = TOOL_CALLS if is_tool_calls else event.reason.value
            return ChatChunkChoice(
                event.index, ChatDelta(), finish_reason=reason, stop_reason=event.stop_reason
            )
        if isinstance(event, ToolCallDelta):
            return ChatChunkChoice(event.index, ChatDelta(tool_calls=[_call_chunk(event)]))
        tokens = chat_tokens(event.tokens, has_ids=self._request.return_tokens_as_token_ids)
        if isinstance(event, ReasoningDelta):
            delta = ChatDelta(reasoning=event.text, reasoning_content=event.text)
            return ChatChunkChoice(event.index, delta, ChatLogprobs([], tokens) if tokens else None)
        return ChatChunkChoice(
            event.index, ChatDelta(content=event.text), ChatLogprobs(tokens) if tokens else None
        )

    def _opening(self, index: int) -> list[ChatChunk]:
        """The chunk that names the role, before a choice's first other chunk."""
        if index in self._begun:
            return []
        self._begun.add(index)
        return [self._chunk(ChatChunkChoice(index, ChatDelta(role="assistant", content="")))]

    def _chunk(self, choice: ChatChunkChoice) -> ChatChunk:
        usage = None if self._request.has_usage_chunk else msgspec.UNSET
        return ChatChunk(self._id, self._created, self._model_name, [choice], usage)

    def _fold(self, index: int, news: Sequence[ChatChunkChoice]) -> ChatChoice:
        text = "".join(item.delta.content or "" for item in news)
        reasoning = "".join(item.delta.reasoning for item in news) or None
        logprobs = None
        if self._request.logprobs:
            scored = [item.logprobs for item in news if item.logprobs is not None]
            logprobs = ChatLogprobs(
                [token for item in scored for token in item.content],
                [token for item in scored for token in item.reasoning],
            )
        calls = _whole_calls([call for item in news for call in item.delta.tool_calls])
        message = ChatMessage(
            text or (None if reasoning or calls else ""),
            reasoning,
            reasoning,
            tool_calls=calls or msgspec.UNSET,
        )
        token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
        if self._request.return_token_ids:
            token_ids = [token_id for item in news for token_id in item.token_ids or ()]
        reason = news[-1].finish_reason or ""
        return ChatChoice(index, message, logprobs, reason, news[-1].stop_reason, token_ids)


def _call_chunk(event: ToolCallDelta) -> ToolCallChunk:
    if not event.call_id:
        return ToolCallChunk(event.position, FunctionDelta(event.arguments))
    return ToolCallChunk(
        event.position, FunctionDelta(event.arguments, event.name), event.call_id, type="function"
    )


def _whole_calls(chunks: Sequence[ToolCallChunk]) -> list[ToolCall]:
    """The calls of a choice out of all its chunks, as a client puts them together."""
    by_index: dict[int, list[ToolCallChunk]] = {}
    for chunk in chunks:
        by_index.setdefault(chunk.index, []).append(chunk)
    return [
        ToolCall(
            str(news[0].id),
            CalledFunction(str(news[0].function.name), "".join(item.function.arguments for item in news)),
        )
        for news in by_index.values()
    ]
