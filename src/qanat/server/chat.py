"""/v1/chat/completions: from messages to a plan."""

from __future__ import annotations

import msgspec

from qanat.core.sampling_params import SamplingParams
from qanat.server.assembler import Assembler, ChatAssembler
from qanat.server.caller import Caller
from qanat.server.chat_reply import ChatReply
from qanat.server.decoding import decode_request
from qanat.server.endpoint import Plan
from qanat.server.fields import CHAT_REFUSALS
from qanat.server.generation import Generation
from qanat.server.messages import check_tools, normalise_messages
from qanat.server.requests import ChatRequest
from qanat.server.responses import ChatChunk
from qanat.server.service import Service, internal_id, usable_id
from qanat.server.tools.calls import CallReader
from qanat.server.tools.parser import parser_factory

FIELD_NAMES = {"prompt": "messages", "logprobs": "top_logprobs"}
"""How a chat request spells what the engine calls otherwise."""


class ChatPlanner:
    """Plans chat requests."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, body: bytes, request_id: str, caller: Caller) -> Plan[ChatChunk]:
        """See `Planner`."""
        service = self._service
        request = decode_request(body, ChatRequest, CHAT_REFUSALS)
        service.check_request(request, caller)
        sampling = request.sampling(dict(service.sampling_defaults))
        tools = check_tools(request.tools, request.tool_choice)
        messages = normalise_messages(request.messages)
        prompt = await service.renderer.render(messages, tools, _template_variables(request))
        reply_id = f"chatcmpl-{usable_id(request.request_id or request_id)}"
        generation = Generation(
            internal_id(reply_id),
            prompt.token_ids,
            _engine_sampling(sampling),
            priority=caller.priority + request.priority,
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

        reply = ChatReply(request, reply_id, service.models_of(caller)[0], prompt.token_ids)
        return Plan(
            [generation], make_assembler, reply, request.stream, request.has_running_usage, FIELD_NAMES
        )


def _template_variables(request: ChatRequest) -> dict[str, object]:
    variables = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort == "none":
        variables.setdefault("enable_thinking", False)
    return variables


def _engine_sampling(sampling: SamplingParams) -> SamplingParams:
    """What the engine is asked for: tokens only. The assembler makes the text and knows where stops apply."""
    return msgspec.structs.replace(sampling, stop=[], detokenize=False)
