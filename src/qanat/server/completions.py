"""/v1/completions: from prompts to a plan, and from reply events to chunks or one answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qanat.engine.tokenizer import Tokenizer
from qanat.server.assembler import Assembler, PlainAssembler
from qanat.server.caller import Caller
from qanat.server.decoding import decode_request
from qanat.server.endpoint import Plan, now_s
from qanat.server.events import Finish, PromptScores, ReplyEvent, TextDelta
from qanat.server.fields import COMPLETION_REFUSALS
from qanat.server.generation import Generation
from qanat.server.logprobs import (
    completion_logprobs,
    echoed_logprobs,
    join_logprobs,
    vllm_prompt_logprobs,
)
from qanat.server.prompts import Prompt, read_prompts
from qanat.server.requests import CompletionRequest
from qanat.server.responses import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    PromptLogprobs,
    Usage,
)
from qanat.server.service import Service, internal_id, usable_id


class CompletionPlanner:
    """Plans completion requests. Choice index = position of the prompt x n + sample."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, body: bytes, request_id: str, caller: Caller) -> Plan[Completion]:
        """See `Planner`."""
        service = self._service
        request = decode_request(body, CompletionRequest, COMPLETION_REFUSALS)
        service.check_request(request)
        sampling = request.sampling(dict(service.sampling_defaults))
        prompts = await read_prompts(request.prompt, service.encoder, service.engine.config, sampling.n)
        reply_id = f"cmpl-{usable_id(request.request_id or request_id)}"
        generations = [
            Generation(
                internal_id(reply_id),
                prompt.token_ids,
                sampling,
                first_index=position * sampling.n,
                priority=request.priority,
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
            request, reply_id, service.model_name, choice_prompts, service.engine.tokenizer
        )
        return Plan(generations, make_assembler, reply, request.stream)


class CompletionReply:
    """A completion in the making; see `Reply`."""

    def __init__(
        self,
        request: CompletionRequest,
        reply_id: str,
        model_name: str,
        prompts: Sequence[Prompt],
        tokenizer: Tokenizer,
    ) -> None:
        self._request = request
        self._id = reply_id
        self._model_name = model_name
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._created = now_s()
        self._echoes = {i: prompt.echo(tokenizer) for i, prompt in enumerate(prompts)} if request.echo else {}
        self._echoed: set[int] = set()
        self._prompt_logprobs: dict[int, PromptLogprobs] = {}

    def add(self, event: ReplyEvent) -> list[Completion]:
        """Takes an event; returns the chunks for it."""
        if isinstance(event, PromptScores):
            return self._add_scores(event)
        opening = self._opening(event.index)
        if isinstance(event, Finish):
            reason = event.reason.value
            return [
                *opening,
                self._chunk(event.index, "", finish_reason=reason, stop_reason=event.stop_reason),
            ]
        assert isinstance(event, TextDelta)
        return [*opening, self._chunk(event.index, event.text, logprobs=self._logprobs(event))]

    def end_chunks(self, usage: Usage) -> list[Completion]:
        """The token counts, if they were asked for."""
        if not self._request.has_usage_chunk:
            return []
        return [Completion(self._id, self._created, self._model_name, [], usage)]

    def whole(self, chunks: Sequence[Completion], usage: Usage) -> Completion:
        """The answer in one piece: a fold over the chunks."""
        by_index: dict[int, list[CompletionChoice]] = {}
        for chunk in chunks:
            by_index.setdefault(chunk.choices[0].index, []).append(chunk.choices[0])
        choices = [self._fold(index, by_index[index]) for index in sorted(by_index)]
        return Completion(self._id, self._created, self._model_name, choices, usage)

    def _add_scores(self, event: PromptScores) -> list[Completion]:
        if self._request.prompt_logprobs is not None:
            self._prompt_logprobs[event.index] = vllm_prompt_logprobs(event.positions)
        if not self._request.echo or self._request.logprobs is None:
            return []
        self._echoed.add(event.index)
        logprobs = echoed_logprobs(
            self._prompts[event.index].token_ids,
            event.positions,
            self._tokenizer,
            has_ids=self._request.return_tokens_as_token_ids,
            num_top=self._request.logprobs,
        )
        return [self._chunk(event.index, self._echoes[event.index], logprobs=logprobs)]

    def _opening(self, index: int) -> list[Completion]:
        """The echoed prompt, before a choice's first other text."""
        if index in self._echoed or index not in self._echoes:
            return []
        self._echoed.add(index)
        return [self._chunk(index, self._echoes[index])]

    def _logprobs(self, event: TextDelta) -> CompletionLogprobs | None:
        if self._request.logprobs is None:
            return None
        return completion_logprobs(
            event.tokens,
            has_ids=self._request.return_tokens_as_token_ids,
            start=len(self._echoes.get(event.index, "")),
        )

    def _chunk(
        self,
        index: int,
        text: str,
        *,
        logprobs: CompletionLogprobs | None = None,
        finish_reason: str | None = None,
        stop_reason: str | int | None = None,
    ) -> Completion:
        usage = None if self._request.has_usage_chunk else msgspec.UNSET
        choice = CompletionChoice(index, text, logprobs, finish_reason, stop_reason)
        return Completion(self._id, self._created, self._model_name, [choice], usage)

    def _fold(self, index: int, news: Sequence[CompletionChoice]) -> CompletionChoice:
        logprobs = None
        if self._request.logprobs is not None:
            logprobs = join_logprobs([item.logprobs for item in news if item.logprobs is not None])
        return CompletionChoice(
            index,
            "".join(item.text for item in news),
            logprobs,
            news[-1].finish_reason,
            news[-1].stop_reason,
            self._prompt_logprobs.get(index),
        )
