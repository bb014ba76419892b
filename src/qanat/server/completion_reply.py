"""A completion in the making: reply events to chunks, and chunks to one answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qanat.engine.tokenizer import Tokenizer
from qanat.server.endpoint import now_s
from qanat.server.events import Finish, PromptScores, ReplyEvent, ReplyStep, TextDelta
from qanat.server.logprobs import (
    completion_logprobs,
    echoed_logprobs,
    join_logprobs,
    vllm_prompt_logprobs,
)
from qanat.server.prompts import Prompt
from qanat.server.requests import CompletionRequest
from qanat.server.responses import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    PromptLogprobs,
    Usage,
)


class CompletionReply:
    """A completion in the making; see `Reply`.

    Args:
        request: what the client asked for.
        reply_id: the answer's id.
        model_name: as the answer says it.
        prompts: one for each choice.
        tokenizer: spells the prompts.
    """

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
        self._begun: set[int] = set()
        self._prompt_logprobs: dict[int, PromptLogprobs] = {}

    def add(self, step: ReplyStep) -> list[Completion]:
        """Takes the news of a choice; returns the chunks for them."""
        if step.is_prior and self._request.stream:
            self._begun.add(step.index)
            self._echoed.add(step.index)
            return []
        chunks = [chunk for event in step.events for chunk in self._chunks_of(event)]
        return self._with_ids(chunks, step) if self._request.return_token_ids else chunks

    def _chunks_of(self, event: ReplyEvent) -> list[Completion]:
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

    def _with_ids(self, chunks: list[Completion], step: ReplyStep) -> list[Completion]:
        """The same with the step's tokens in the last chunk, and with the prompt's in the choice's first one."""
        if not chunks:
            if not step.token_ids:
                return []
            chunks = [*self._opening(step.index), self._chunk(step.index, "")]
        choice = msgspec.structs.replace(chunks[-1].choices[0], token_ids=step.token_ids)
        chunks[-1] = msgspec.structs.replace(chunks[-1], choices=[choice])
        if step.index not in self._begun:
            self._begun.add(step.index)
            prompt_ids = self._prompts[step.index].token_ids
            choice = msgspec.structs.replace(chunks[0].choices[0], prompt_token_ids=prompt_ids)
            chunks[0] = msgspec.structs.replace(chunks[0], choices=[choice])
        return chunks

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
        has_ids = self._request.return_token_ids
        return CompletionChoice(
            index,
            "".join(item.text for item in news),
            logprobs,
            news[-1].finish_reason,
            news[-1].stop_reason,
            self._prompt_logprobs.get(index),
            [token_id for item in news for token_id in item.token_ids or ()] if has_ids else msgspec.UNSET,
            self._prompts[index].token_ids if has_ids else msgspec.UNSET,
        )
