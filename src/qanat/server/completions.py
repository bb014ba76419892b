"""/v1/completions: from prompts to a plan."""

from __future__ import annotations

from qanat.server.assembler import Assembler, PlainAssembler
from qanat.server.caller import Caller
from qanat.server.completion_reply import CompletionReply
from qanat.server.decoding import decode_request
from qanat.server.endpoint import Plan
from qanat.server.fields import COMPLETION_REFUSALS
from qanat.server.generation import Generation
from qanat.server.prompts import read_prompts
from qanat.server.requests import CompletionRequest
from qanat.server.responses import Completion
from qanat.server.service import Service, internal_id, usable_id


class CompletionPlanner:
    """Plans completion requests. Choice index = position of the prompt x n + sample."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, body: bytes, request_id: str, caller: Caller) -> Plan[Completion]:
        """See `Planner`."""
        service = self._service
        request = decode_request(body, CompletionRequest, COMPLETION_REFUSALS)
        service.check_request(request, caller)
        sampling = request.sampling(dict(service.sampling_defaults))
        prompts = await read_prompts(request.prompt, service.encoder, service.engine.config, sampling.n)
        reply_id = f"cmpl-{usable_id(request.request_id or request_id)}"
        generations = [
            Generation(
                internal_id(reply_id),
                prompt.token_ids,
                sampling,
                first_index=position * sampling.n,
                priority=caller.priority + request.priority,
                cache_salt=request.cache_salt,
                timeout_s=request.timeout,
                owner=caller.name,
            )
            for position, prompt in enumerate(prompts)
        ]

        def make_assembler(index: int) -> Assembler:
            return PlainAssembler(index, service.engine.tokenizer, sampling)

        choice_prompts = [prompt for prompt in prompts for _ in range(sampling.n)]
        reply = CompletionReply(
            request, reply_id, service.models_of(caller)[0], choice_prompts, service.engine.tokenizer
        )
        return Plan(generations, make_assembler, reply, request.stream, request.has_running_usage)
