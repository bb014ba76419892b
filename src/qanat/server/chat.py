"""/v1/chat/completions: from messages to a plan, and from reply events to chunks or one answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qanat.core.sampling_params import SamplingParams
from qanat.server.assembler import Assembler, ChatAssembler
from qanat.server.caller import Caller
from qanat.server.decoding import decode_request
from qanat.server.endpoint import Plan, now_s
from qanat.server.events import Finish, PromptScores, ReasoningDelta, ReplyEvent, TextDelta, ToolCallDelta
from qanat.server.fields import CHAT_REFUSALS
from qanat.server.generation import Generation
from qanat.server.logprobs import chat_tokens, vllm_prompt_logprobs
from qanat.server.messages import check_tools, normalise_messages
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
from qanat.server.service import Service, internal_id, usable_id
from qanat.server.tools.calls import CallReader
from qanat.server.tools.parser import parser_factory

FIELD_NAMES = {"prompt": "messages", "logprobs": "top_logprobs"}
"""How a chat request spells what the engine calls otherwise."""


TOOL_CALLS = "tool_calls"
"""The finish_reason of a turn that ends with calls."""


class ChatPlanner:
    """Plans chat requests."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, body: bytes, request_id: str, caller: Caller) -> Plan[ChatChunk]:
        """See `Planner`."""
        service = self._service
        request = decode_request(body, ChatRequest, CHAT_REFUSALS)
        service.check_request(request)
        sampling = request.sampling(dict(service.sampling_defaults))
        tools = check_tools(request.tools, request.tool_choice)
        messages = normalise_messages(request.messages)
        prompt = await service.renderer.render(messages, tools, _template_variables(request))
        reply_id = f"chatcmpl-{usable_id(request.request_id or request_id)}"
        generation = Generation(
            internal_id(reply_id),
            prompt.token_ids,
            _engine_sampling(sampling),
            priority=request.priority,
            cache_salt=request.cache_salt,
            timeout_s=request.timeout,
            owner=caller.name,
        )

        max_calls = None if request.parallel_tool_calls else 1

        def make_assembler(index: int) -> Assembler:
            calls = None
            if tools and service.call_format is not None:
                calls = CallReader(index, parser_factory(service.call_format, tools), max_calls)
            return ChatAssembler(
                index, service.engine.tokenizer, sampling, service.tags, prompt.is_reasoning_open, calls
            )

        reply = ChatReply(request, reply_id, service.model_name)
        return Plan([generation], make_assembler, reply, request.stream, FIELD_NAMES)


def _template_variables(request: ChatRequest) -> dict[str, object]:
    variables = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort == "none":
        variables.setdefault("enable_thinking", False)
    return variables


def _engine_sampling(sampling: SamplingParams) -> SamplingParams:
    """What the engine is asked for: tokens only. The assembler makes the text and knows where stops apply."""
    return msgspec.structs.replace(sampling, stop=[], detokenize=False)


class ChatReply:
    """A chat answer in the making; see `Reply`."""

    def __init__(self, request: ChatRequest, reply_id: str, model_name: str) -> None:
        self._request = request
        self._id = reply_id
        self._model_name = model_name
        self._created = now_s()
        self._begun: set[int] = set()
        self._prompt_logprobs: PromptLogprobs | None = None

    def add(self, event: ReplyEvent) -> list[ChatChunk]:
        """Takes an event; returns the chunks for it."""
        if isinstance(event, PromptScores):
            self._prompt_logprobs = self._prompt_logprobs or vllm_prompt_logprobs(event.positions)
            return []
        if isinstance(event, ReasoningDelta) and not self._request.include_reasoning:
            return []
        return [*self._opening(event.index), self._chunk(self._news(event))]

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
            self._id, self._created, self._model_name, choices, usage, self._prompt_logprobs
        )

    def _news(self, event: TextDelta | ReasoningDelta | ToolCallDelta | Finish) -> ChatChunkChoice:
        if isinstance(event, Finish):
            reason = TOOL_CALLS if event.is_tool_calls else event.reason.value
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
        return ChatChoice(index, message, logprobs, news[-1].finish_reason or "", news[-1].stop_reason)


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
