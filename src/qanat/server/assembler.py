"""From the tokens of one choice to reply events: reasoning told from the answer, stop strings, logprobs in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from qanat.core.events import GenerationEvent, PositionLogprobs
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.engine.detokenizer import IncrementalDetokenizer, StopMatch, StopStringChecker
from qanat.engine.tokenizer import Tokenizer
from qanat.server.events import Finish, PromptScores, ReasoningDelta, ReplyEvent, ScoredToken, TextDelta
from qanat.server.tags import ThinkTags


class Assembler(Protocol):
    """Turns the engine's events of one choice into reply events."""

    def push(self, event: GenerationEvent) -> list[ReplyEvent]:
        """Takes the next event; the result ends with `Finish` if the choice ended."""
        ...


class PlainAssembler:
    """For text without tags: passes the engine's text on, and finds each token's place in it if logprobs are wanted."""

    def __init__(self, index: int, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        self._index = index
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=sampling.skip_special_tokens
        )
        self._tokenizer = tokenizer
        self._num_chars = 0

    def push(self, event: GenerationEvent) -> list[ReplyEvent]:
        """See `Assembler`."""
        events: list[ReplyEvent] = []
        if event.prompt_logprobs is not None:
            events.append(PromptScores(self._index, event.prompt_logprobs))
        tokens = [self._place(position) for position in event.logprobs]
        if event.text or tokens:
            events.append(TextDelta(self._index, event.text, tokens))
        if event.finish_reason is not None:
            events.append(_finish(self._index, event, event.finish_reason, event.stop_reason))
        return events

    def _place(self, position: PositionLogprobs) -> ScoredToken:
        token_id = position.chosen.token_id
        offset = self._num_chars
        self._num_chars += len(self._detokenizer.push(token_id))
        return ScoredToken(position.chosen, position.top, self._tokenizer.token_bytes(token_id), offset)


class ChatAssembler:
    """For chat answers. Works on token ids, so the result does not depend on how many come in one event.

    A thinking block is one that the prompt left open, or one that begins before any visible text; it ends at its
    closing tag. Tags anywhere else are text. Newlines around the reasoning, and before the answer that follows it,
    belong to the format and are dropped. Stop strings are looked for in the answer only.

    The engine is asked for tokens, not for text: see `engine_sampling`.

    Args:
        index: choice.
        tokenizer: the checkpoint's.
        sampling: what the client asked for.
        tags: ids of the thinking tags; None leaves the text in one piece.
        is_reasoning_open: the prompt left a thinking block open.
    """

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        sampling: SamplingParams,
        tags: ThinkTags | None,
        is_reasoning_open: bool,
    ) -> None:
        self._index = index
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._tags = tags
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=sampling.skip_special_tokens
        )
        self._hidden_ids = tokenizer.special_token_ids if sampling.skip_special_tokens else frozenset()
        self._is_reasoning = tags is not None and is_reasoning_open
        self._may_open = tags is not None
        self._reasoning = _NewlineTrimmer()
        self._answer = _Answer(sampling)
        self._num_tokens = 0
        self._num_reasoning_tokens = 0

    def push(self, event: GenerationEvent) -> list[ReplyEvent]:
        """See `Assembler`."""
        news = _News()
        if event.prompt_logprobs is not None:
            news.events.append(PromptScores(self._index, event.prompt_logprobs))
        last = len(event.token_ids) - 1
        for i, token_id in enumerate(event.token_ids):
            position = event.logprobs[i] if event.logprobs else None
            self._num_tokens += 1
            if event.finish_reason is FinishReason.STOP and i == last:
                match = self._take_stop_token(token_id, position, news)
            else:
                match = self._take(token_id, position, news)
            if match is not None:
                return self._events(event, news, FinishReason.STOP, match.stop)
        if event.finish_reason is None:
            return self._events(event, news, None, None)
        self._flush(news)
        return self._events(event, news, event.finish_reason, event.stop_reason)

    def _take(self, token_id: int, position: PositionLogprobs | None, news: _News) -> StopMatch | None:
        if self._tags is not None and self._is_tag(token_id):
            self._num_reasoning_tokens += 1
            self._score_reasoning(position, b"", news)
            self._is_reasoning = token_id == self._tags.start_id
            self._may_open = False
            if not self._is_reasoning:
                news.reasoning += self._reasoning.push(self._detokenizer.finish())
                self._answer.drop_leading_newlines()
            return None
        raw = b"" if token_id in self._hidden_ids else self._tokenizer.token_bytes(token_id)
        text = self._detokenizer.push(token_id)
        if self._is_reasoning:
            self._num_reasoning_tokens += 1
            self._score_reasoning(position, raw, news)
            self._may_open = self._may_open and not raw.strip()
            news.reasoning += self._reasoning.push(text)
            return None
        self._may_open = self._may_open and not raw.strip()
        is_checked = self._num_tokens > self._sampling.min_tokens
        return self._answer.push(text, raw, position, news, is_checked=is_checked)

    def _is_tag(self, token_id: int) -> bool:
        """Whether this token acts as a tag here: an opening one before any text, a closing one in the block."""
        assert self._tags is not None
        if token_id == self._tags.start_id:
            return self._may_open
        return token_id == self._tags.end_id and self._is_reasoning

    def _take_stop_token(
        self, token_id: int, position: PositionLogprobs | None, news: _News
    ) -> StopMatch | None:
        """A stop token's own text is shown only if stops are to be included."""
        if self._sampling.include_stop_str_in_output:
            return self._take(token_id, position, news)
        if self._is_reasoning:
            self._num_reasoning_tokens += 1
            self._score_reasoning(position, b"", news)
            return None
        return self._answer.push("", b"", position, news, is_checked=False)

    def _flush(self, news: _News) -> None:
        """At the end: an unfinished character, and whatever was held back."""
        tail = self._detokenizer.finish()
        if self._is_reasoning:
            news.reasoning += self._reasoning.push(tail)
        elif self._answer.push(tail, b"", None, news, is_checked=True) is not None:
            return
        self._answer.finish(news)

    def _score_reasoning(self, position: PositionLogprobs | None, raw: bytes, news: _News) -> None:
        if position is not None:
            news.reasoning_tokens.append(ScoredToken(position.chosen, position.top, raw, 0))

    def _events(
        self, event: GenerationEvent, news: _News, reason: FinishReason | None, stop_reason: str | int | None
    ) -> list[ReplyEvent]:
        events = news.events
        if news.reasoning or news.reasoning_tokens:
            events.append(ReasoningDelta(self._index, news.reasoning, news.reasoning_tokens))
        if news.text or news.tokens:
            events.append(TextDelta(self._index, news.text, news.tokens))
        if reason is not None:
            events.append(
                _finish(self._index, event, reason, stop_reason, self._num_tokens, self._num_reasoning_tokens)
            )
        return events


@dataclass
class _News:
    """What one engine event adds to a choice."""

    events: list[ReplyEvent] = field(default_factory=list)
    reasoning: str = ""
    reasoning_tokens: list[ScoredToken] = field(default_factory=list)
    text: str = ""
    tokens: list[ScoredToken] = field(default_factory=list)


class _NewlineTrimmer:
    """Drops newlines at both ends of a text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._has_begun = False

    def push(self, text: str) -> str:
        """Text that is certain to be inside."""
        if not self._has_begun:
            text = text.lstrip("\n")
            self._has_begun = bool(text)
        text = self._held + text
        kept = text.rstrip("\n")
        self._held = text[len(kept) :]
        return kept


class _Answer:
    """The visible answer: leading newlines after reasoning, stop strings, and which token added what."""

    def __init__(self, sampling: SamplingParams) -> None:
        self._stops = StopStringChecker(sampling.stop, is_included=sampling.include_stop_str_in_output)
        self._is_trimming = False
        self._num_fed = 0
        self._num_released = 0
        self._waiting: list[ScoredToken] = []

    def drop_leading_newlines(self) -> None:
        """The answer begins now, after a thinking block."""
        self._is_trimming = True

    def push(
        self, text: str, raw: bytes, position: PositionLogprobs | None, news: _News, *, is_checked: bool
    ) -> StopMatch | None:
        """Takes one token's text; adds what is certain to `news`. Returns the stop that completed, if one did."""
        if self._is_trimming:
            text, raw = text.lstrip("\n"), raw.lstrip(b"\n")
            self._is_trimming = not raw
        if position is not None:
            self._waiting.append(ScoredToken(position.chosen, position.top, raw, self._num_fed))
        self._num_fed += len(text)
        released = self._stops.push(text) if is_checked else text
        if isinstance(released, StopMatch):
            self._release(released.text, news)
            self._release_cut_tokens(news)
            return released
        self._release(released, news)
        return None

    def finish(self, news: _News) -> None:
        """The answer ended without a stop string."""
        self._release(self._stops.finish(), news)
        news.tokens += self._waiting
        self._waiting = []

    def _release(self, text: str, news: _News) -> None:
        """Shows text, with every token that ends in it."""
        if not text:
            return
        news.text += text
        self._num_released += len(text)
        ends = [token.text_offset for token in self._waiting[1:]] + [self._num_fed]
        num_shown = sum(1 for end in ends if end <= self._num_released) if self._waiting else 0
        news.tokens += self._waiting[:num_shown]
        del self._waiting[:num_shown]

    def _release_cut_tokens(self, news: _News) -> None:
        """Tokens of the stop string: they count, but only what lies before the cut was shown."""
        for token in self._waiting:
            num_shown = max(0, self._num_released - token.text_offset)
            shown = token.text_bytes.decode(errors="replace")[:num_shown].encode()
            news.tokens.append(ScoredToken(token.chosen, token.top, shown, token.text_offset))
        self._waiting = []


def _finish(
    index: int,
    event: GenerationEvent,
    reason: FinishReason,
    stop_reason: str | int | None,
    num_output_tokens: int | None = None,
    num_reasoning_tokens: int = 0,
) -> Finish:
    num_tokens = event.num_output_tokens if num_output_tokens is None else num_output_tokens
    return Finish(index, reason, stop_reason, num_tokens, num_reasoning_tokens, event.num_cached_tokens)
