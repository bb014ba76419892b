"""/v1/chat/completions: from messages to a plan."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from qanat.core.constraint import Thinking
from qanat.core.sampling_params import SamplingParams
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.server import resume
from qanat.server.assembler import Assembler, ChatAssembler
from qanat.server.caller import Caller
from qanat.server.chat_reply import ChatReply
from qanat.server.continuation import Ending, ending_of
from qanat.server.decoding import decode_request
from qanat.server.encoding import MAX_INLINE_CHARS, num_chars_up_to
from qanat.server.endpoint import Plan
from qanat.server.fields import CHAT_REFUSALS
from qanat.server.generation import Generation
from qanat.server.output_form import RequestedForm, requested_form
from qanat.server.prompts import check_num_scores, valid_vocab_size
from qanat.server.requests import ChatRequest
from qanat.server.responses import ChatChunk
from qanat.server.resume import prior_output, prompt_of
from qanat.server.service import Service, internal_id, usable_id
from qanat.server.tools.calls import CallReader
from qanat.server.tools.choice import ToolUse, tool_use
from qanat.server.tools.enforce import form_with_calls
from qanat.server.tools.parser import CallFormat, bare_openings, parser_factory

FIELD_NAMES = {**resume.FIELD_NAMES, "prompt": "messages", "logprobs": "top_logprobs"}
"""How a chat request spells what the engine calls otherwise."""


@dataclass(frozen=True)
class _Rules:
    """What the output may hold: which calls, how many, and in which form; and the field that asked for the form."""

    use: ToolUse
    call_format: CallFormat | None
    is_parallel: bool
    form: StructuredOutputsParams | None
    form_field: str

    def call_reader(self, index: int) -> CallReader | None:
        """Reads the calls of the choice with this index; None if they are text."""
        if not self.use.offered or self.call_format is None:
            return None
        make_parser = parser_factory(self.call_format, self.use.offered)
        openings = bare_openings(self.call_format, self.use.offered)
        return CallReader(index, make_parser, None if self.is_parallel else 1, openings)


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
        vocab_size = valid_vocab_size(service.engine.config)
        prior = prior_output(request, sampling, caller, vocab_size)
        use, answer = tool_use(request.tools, request.tool_choice), requested_form(request)
        ending = ending_of(request.add_generation_prompt, request.continue_final_message)
        prompt = await service.renderer.render(
            request.messages, use.offered, _template_variables(request), ending, caller.name
        )
        # After the prompt, whose size is bounded then: a schema is walked through here.
        num_chars = num_chars_up_to(MAX_INLINE_CHARS, use.offered or ())
        rules = await service.encoder.run(caller.name, num_chars, self._rules, request, use, answer)
        prompt_ids = prompt_of(request, prompt.token_ids, vocab_size)
        check_num_scores(sampling, len(prompt_ids), "prompt_logprobs")
        reply_id = f"chatcmpl-{usable_id(request.request_id or request_id)}"
        generation = Generation(
            internal_id(reply_id),
            prompt_ids,
            _engine_sampling(sampling, rules.form),
            priority=caller.priority + request.priority,
            cache_salt=request.cache_salt,
            boundaries=prompt.boundaries,
            timeout_s=service.timeouts(request.timeout),
            # Reasoning that is not told from the answer is a part of what has the form.
            thinking=Thinking.NONE if service.tags is None else prompt.thinking,
            owner=caller.name,
            output_token_ids=prior,
        )
        tags = None if ending is Ending.CONTINUE else service.tags  # an answer that goes on holds no thoughts
        is_reasoning_open = prompt.thinking is Thinking.OPEN

        def make_assembler(index: int) -> Assembler:
            return ChatAssembler(
                index,
                service.engine.tokenizer,
                sampling,
                tags,
                is_reasoning_open,
                rules.call_reader(index),
            )

        reply = ChatReply(request, reply_id, service.models_of(caller)[0], prompt_ids, rules.use)
        return Plan(
            [generation],
            make_assembler,
            reply,
            request.stream,
            request.has_running_usage,
            FIELD_NAMES,
            rules.form_field,
        )

    def _rules(self, request: ChatRequest, use: ToolUse, answer: RequestedForm | None) -> _Rules:
        """What follows from the fields about tools and about the form of the answer."""
        is_read = use.is_required or self._service.reads_auto_calls
        call_format = self._service.call_format if is_read else None
        is_parallel = request.parallel_tool_calls
        form = form_with_calls(use, answer.params if answer else None, call_format, is_parallel=is_parallel)
        return _Rules(use, call_format, is_parallel, form, answer.field if answer else "tools")


def _template_variables(request: ChatRequest) -> dict[str, object]:
    variables = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort == "none":
        variables.setdefault("enable_thinking", False)
    return variables


def _engine_sampling(sampling: SamplingParams, form: StructuredOutputsParams | None) -> SamplingParams:
    """What the engine is asked for: tokens only. The assembler makes the text and knows where stops apply."""
    return msgspec.structs.replace(sampling, stop=[], detokenize=False, structured_outputs=form)
