"""/v1/completions: from prompts to a plan."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qanat.core.errors import InvalidRequestError
from qanat.server.assembler import Assembler, PlainAssembler
from qanat.server.caller import Caller
from qanat.server.completion_reply import CompletionReply
from qanat.server.decoding import decode_request
from qanat.server.endpoint import Plan
from qanat.server.fields import COMPLETION_REFUSALS
from qanat.server.generation import Generation
from qanat.server.output_form import requested_form
from qanat.server.prompts import Prompt, check_num_allowed, check_num_scores, read_prompts, valid_vocab_size
from qanat.server.requests import CompletionRequest
from qanat.server.responses import Completion
from qanat.server.resume import FIELD_NAMES, prior_output, prompt_of
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
        form = requested_form(request)
        sampling = msgspec.structs.replace(
            request.sampling(dict(service.sampling_defaults)),
            structured_outputs=form.params if form else None,
        )
        prompts = await read_prompts(
            request.prompt, service.encoder, service.engine.config, sampling.n, caller.name
        )
        vocab_size = valid_vocab_size(service.engine.config)
        prior = prior_output(request, sampling, caller, vocab_size)
        if prior:
            prompts = [_only(prompts, request, vocab_size)]
        check_num_allowed(sampling, len(prompts))
        num_tokens = sum(len(prompt.token_ids) for prompt in prompts)
        check_num_scores(
            sampling, num_tokens, "logprobs" if request.prompt_logprobs is None else "prompt_logprobs"
        )
        reply_id = f"cmpl-{usable_id(request.request_id or request_id)}"
        generations = [
            Generation(
                internal_id(reply_id),
                prompt.token_ids,
                sampling,
                first_index=position * sampling.n,
                priority=caller.priority + request.priority,
                cache_salt=request.cache_salt,
                timeout_s=service.timeouts(request.timeout),
                owner=caller.name,
                output_token_ids=prior,
            )
            for position, prompt in enumerate(prompts)
        ]

        def make_assembler(index: int) -> Assembler:
            return PlainAssembler(index, service.engine.tokenizer, sampling)

        choice_prompts = [prompt for prompt in prompts for _ in range(sampling.n)]
        reply = CompletionReply(
            request, reply_id, service.models_of(caller)[0], choice_prompts, service.engine.tokenizer
        )
        return Plan(
            generations,
            make_assembler,
            reply,
            request.stream,
            request.has_running_usage,
            FIELD_NAMES,
            form.field if form else "",
        )


def _only(prompts: Sequence[Prompt], request: CompletionRequest, vocab_size: int) -> Prompt:
    """The prompt of a request that resumes another.

    Raises:
        InvalidRequestError: there are several, or the one given in place of it is none.
    """
    if len(prompts) != 1:
        raise InvalidRequestError("resume needs exactly one prompt.", param="resume")
    return Prompt(prompt_of(request, prompts[0].token_ids, vocab_size), prompts[0].text)
