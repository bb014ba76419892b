"""From the tokens of one choice to reply events: reasoning told from the answer, calls, stop strings, logprobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from qanat.core.events import GenerationEvent, PositionLogprobs
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.engine.detokenizer import IncrementalDetokenizer, StopMatch
from qanat.engine.output_processor import prior_text
from qanat.engine.tokenizer import Tokenizer
from qanat.server.answer import Answer, NewlineTrimmer, News
from qanat.server.events import Finish, PromptScores, ReplyEvent, ScoredToken, TextDelta
from qanat.server.tags import ThinkTags
from qanat.server.tools.calls import CallReader
from qanat.server.tools.tags import Tag, TagReader, Unit


class Assembler(Protocol):
    """Turns the engine's events of one choice into reply events."""

    def push(self, event: GenerationEvent) -> list[ReplyEvent]:
        """Takes the next event; the result ends with `Finish` if the choice ended."""
        ...

    def replay(self, token_ids: Sequence[int]) -> list[ReplyEvent]:
        """Takes the output so far, before the first event, of a choice that is resumed."""
        ...

    @property
    def num_reasoning_tokens(self) -> int:
        """Of all tokens so far, those of the thinking block."""
        ...


class PlainAssembler:
    """For text without tags: passes the engine's text on, and finds each token's place in it if logprobs are wanted."""

    def __init__(self, index: int, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        self._index = index
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=sampling.skip_special_tokens
        )
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._num_chars = 0

    @property
    def num_reasoning_tokens(self) -> int:
        """See `Assembler`."""
        return 0

    def push(self, event: GenerationEvent) -> list[ReplyEvent]:
        """See `Assembler`."""
        events: list[ReplyEvent] = []
        if event.prompt_logprobs is not None:
            events.append(PromptScores(self._index, event.prompt_logprobs))
        tokens = [self._place(position) for position in event.logprobs]
        if event.text or tokens:
            events.append(TextDelta(self._index, event.text, tokens))
        if event.finish_reason is not None:
            num_tokens = event.num_output_tokens
            reason, stop_reason = event.finish_reason, event.stop_reason
            events.append(Finish(self._index, reason, stop_reason, num_tokens, 0, event.num_cached_tokens))
        return events

    def replay(self, token_ids: Sequence[int]) -> list[ReplyEvent]:
        """See `Assembler`. The engine's text goes on where this ends."""
        return [TextDelta(self._index, prior_text(self._tokenizer, self._sampling, list(token_ids)))]

    def _place(self, position: PositionLogprobs) -> ScoredToken:
        token_id = position.chosen.token_id
        offset = self._num_chars
        self._num_chars += len(self._detokenizer.push(token_id))
        return ScoredToken(position.chosen, position.top, self._tokenizer.token_bytes(token_id), offset)


class ChatAssembler:
    """For chat answers. Works on token ids, so the result does not depend on how many come in one event.

    A thinking block is one that the prompt left open, or one that begins before any visible text; it ends at its
    closing tag, or where a tool call begins, and if its tag comes after that it is dropped. Tags anywhere else are
    text. Newlines around the reasoning, and before the answer that follows it, belong to the format and are dropped.
    Stop strings are looked for in the answer only.

    What may be a call is held back until it is certain; if it is none, its tokens are handled as if they came now.

    The engine is asked for tokens, not for text: see `engine_sampling`.

    Args:
        index: choice.
        tokenizer: the checkpoint's.
        sampling: what the client asked for.
        tags: ids of the thinking tags; None leaves the text in one piece.
        is_reasoning_open: the prompt left a thinking block open.
        calls: reads the tool calls; None leaves them in the text.
    """

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        sampling: SamplingParams,
        tags: ThinkTags | None,
        is_reasoning_open: bool,
        calls: CallReader | None = None,
    ) -> None:
        self._index = index
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._tags = tags
        self._calls = calls
        self._tag_reader = TagReader(tokenizer, calls.openings) if calls is not None else None
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=sampling.skip_special_tokens
        )
        self._hidden_ids = tokenizer.special_token_ids if sampling.skip_special_tokens else frozenset()
        self._is_reasoning = tags is not None and is_reasoning_open
        self._may_open = tags is not None
        self._is_cut_by_call = False
        self._reasoning = NewlineTrimmer()
        self._answer = Answer(sampling, holds_space=calls is not None)
        self._is_over = False
        self._num_tokens = 0
        self._num_reasoning_tokens = 0

    @property
    def num_reasoning_tokens(self) -> int:
        """See `Assembler`."""
        return self._num_reasoning_tokens

    def push(self, event: GenerationEvent) -> list[ReplyEvent]:
        """See `Assembler`."""
        news = News()
        if event.prompt_logprobs is not None:
            news.events.append(PromptScores(self._index, event.prompt_logprobs))
        if self._take_plain(event, news):
            return self._events(event, news, None, None)
        last = len(event.token_ids) - 1
        for i, token_id in enumerate(event.token_ids):
            position = event.logprobs[i] if event.logprobs else None
            self._num_tokens += 1
            if event.finish_reason is FinishReason.STOP and i == last:
                match = self._take_stop_token(token_id, position, news)
            else:
                match = self._take_token(token_id, position, news)
            if match is not None:
                return self._events(event, news, FinishReason.STOP, match.stop)
            if self._is_over:
                self._answer.finish(news)
                return self._events(event, news, FinishReason.STOP, None)
        if event.finish_reason is None:
            return self._events(event, news, None, None)
        match = self._flush(news)
        if match is not None:
            return self._events(event, news, FinishReason.STOP, match.stop)
        if self._is_over:
            return self._events(event, news, FinishReason.STOP, None)
        return self._events(event, news, event.finish_reason, event.stop_reason)

    def replay(self, token_ids: Sequence[int]) -> list[ReplyEvent]:
        """See `Assembler`."""
        return self.push(GenerationEvent(token_ids=list(token_ids)))

    def _take_plain(self, event: GenerationEvent, news: News) -> bool:
        """Takes all tokens at once where nothing depends on a single one: within the answer, or within the reasoning.

        False, with nothing taken, if they must be looked at one by one.
        """
        if self._calls is not None or event.logprobs or event.finish_reason is not None:
            return False
        if self._is_reasoning:
            assert self._tags is not None
            if self._may_open or self._tags.end_id in event.token_ids:
                return False
            news.reasoning += self._reasoning.push(self._detokenizer.push_all(event.token_ids))
            self._num_reasoning_tokens += len(event.token_ids)
        elif not self._may_open and self._answer.is_passing:
            self._answer.pass_on(self._detokenizer.push_all(event.token_ids), news)
        else:
            return False
        self._num_tokens += len(event.token_ids)
        return True

    def _take_token(self, token_id: int, position: PositionLogprobs | None, news: News) -> StopMatch | None:
        raw = b"" if token_id in self._hidden_ids else self._tokenizer.token_bytes(token_id)
        unit = Unit(token_id, self._detokenizer.push(token_id), raw, position, self._num_tokens)
        return self._take([unit] if self._tag_reader is None else self._tag_reader.push(unit), news)

    def _take(self, units: Sequence[Unit], news: News) -> StopMatch | None:
        """Handles units in order, and in their place what they lead to."""
        waiting = deque(units)
        while waiting and not self._is_over:
            unit = waiting.popleft()
            if self._calls is not None and self._calls.is_reading:
                waiting.extendleft(reversed(self._take_in_call(self._calls, unit, news)))
                continue
            if self._calls is not None and self._is_mere_text(self._calls, unit):
                waiting.extendleft(reversed(unit.as_text()))
                continue
            match = self._take_outside(unit, news)
            if match is not None:
                self._drop(waiting, news)
                return match
        if self._is_over:
            self._answer.finish(news)
            self._drop(waiting, news)
        return None

    def _is_mere_text(self, calls: CallReader, unit: Unit) -> bool:
        """Whether a tag's spelling is none here: an end needs a beginning, and thoughts about a call are no call."""
        if unit.tag is Tag.BARE:
            return self._is_reasoning
        return unit.tag is Tag.CLOSE and not calls.is_inside_tags

    def _drop(self, units: Iterable[Unit], news: News) -> None:
        """Scores tokens that came after the output's end, when it was not yet certain."""
        for unit in units:
            for position in unit.positions:
                self._answer.push_after_end(position, news)

    def _take_in_call(self, calls: CallReader, unit: Unit, news: News) -> list[Unit]:
        """Handles a unit within a call; returns what is to be handled next."""
        result = calls.push(unit)
        if result.is_begun or result.is_too_many:
            if self._is_reasoning:
                self._is_reasoning, self._is_cut_by_call = False, True
                self._answer.drop_leading_newlines()
            self._may_open = False
            self._answer.begin_call(news)
        for silent in result.silent:
            for position in silent.positions:
                self._answer.push_silent(position, news)
        news.calls += result.deltas
        self._is_over = result.is_too_many
        return result.again

    def _take_outside(self, unit: Unit, news: News) -> StopMatch | None:
        """Handles a unit of the reasoning or of the answer."""
        if self._calls is not None:
            if self._calls.begins_at(unit):
                return None
            if self._calls.closes_at(unit):
                for position in unit.positions:
                    self._answer.push_silent(position, news)
                return None
        if self._acts_as_tag(unit.token_id):
            self._take_think_tag(unit, news)
            return None
        if self._is_late_end(unit.token_id):
            self._is_cut_by_call = False
            for position in unit.positions:
                self._answer.push_silent(position, news)
            return None
        self._may_open = self._may_open and not unit.raw.strip()
        if self._is_reasoning:
            self._num_reasoning_tokens += unit.is_counted
            self._score_reasoning(unit.position, unit.raw, news)
            news.reasoning += self._reasoning.push(unit.text)
            return None
        is_checked = unit.number > self._sampling.min_tokens
        return self._answer.push(unit.text, unit.raw, unit.position, news, is_checked=is_checked)

    def _acts_as_tag(self, token_id: int) -> bool:
        """Whether this token is a thinking tag here: an opening one before any text, a closing one in the block."""
        if self._tags is None:
            return False
        if token_id == self._tags.start_id:
            return self._may_open
        return token_id == self._tags.end_id and self._is_reasoning

    def _is_late_end(self, token_id: int) -> bool:
        """Whether this closes a block that a call has ended already: the model thought that it still stood open."""
        return self._is_cut_by_call and self._tags is not None and token_id == self._tags.end_id

    def _take_think_tag(self, unit: Unit, news: News) -> None:
        assert self._tags is not None
        self._num_reasoning_tokens += 1
        self._score_reasoning(unit.position, b"", news)
        self._is_reasoning = unit.token_id == self._tags.start_id
        self._may_open = False
        if not self._is_reasoning:
            unfinished = unit.text.removesuffix(self._tokenizer.token_bytes(unit.token_id).decode())
            news.reasoning += self._reasoning.push(unfinished)
            self._answer.drop_leading_newlines()

    def _take_stop_token(
        self, token_id: int, position: PositionLogprobs | None, news: News
    ) -> StopMatch | None:
        """A stop token's own text is shown only if stops are to be included."""
        match, is_scored = self._resolve_calls(news, position, is_turn_over=True)
        position = None if is_scored else position
        if match is not None or self._is_over:
            if position is not None:
                self._answer.push_after_end(position, news)
            return match
        if self._sampling.include_stop_str_in_output:
            return self._take_token(token_id, position, news)
        if self._is_reasoning:
            self._num_reasoning_tokens += 1
            self._score_reasoning(position, b"", news)
            return None
        return self._answer.push("", b"", position, news, is_checked=False)

    def _resolve_calls(
        self, news: News, position: PositionLogprobs | None, *, is_turn_over: bool
    ) -> tuple[StopMatch | None, bool]:
        """At the end: what is not certain to be a call is none, and an open one shows what it held back.

        Args:
            news: to be added to.
            position: of the token that ended the turn, if one did; what it made certain to be text is its text.
            is_turn_over: the model ended its turn.

        Returns:
            A stop string found in that, and whether `position` has been used.
        """
        if self._calls is None or self._tag_reader is None:
            return None, False
        match = self._take(self._tag_reader.finish(), news)
        is_scored = False
        if self._calls.is_open:
            self._detokenizer.finish()  # half a character of an argument
            end = self._calls.finish(position, self._num_tokens, is_turn_over=is_turn_over)
            news.calls += end.deltas
            is_scored = bool(end.again)
            match = self._take(end.again, news)
        while match is None and self._calls.is_reading and not self._is_over:
            match = self._take(self._calls.give_up(), news)
        return match, is_scored

    def _flush(self, news: News) -> StopMatch | None:
        """At the end: an unfinished character, and whatever was held back. Returns a stop string found in it."""
        match, _ = self._resolve_calls(news, None, is_turn_over=False)
        if match is not None:
            return match
        tail = self._detokenizer.finish()
        if self._is_reasoning:
            news.reasoning += self._reasoning.push(tail)
        elif self._answer.push(tail, b"", None, news, is_checked=True) is not None:
            return None
        self._answer.finish(news)
        return None

    def _score_reasoning(self, position: PositionLogprobs | None, raw: bytes, news: News) -> None:
        if position is not None:
            news.reasoning_tokens.append(ScoredToken(position.chosen, position.top, raw, 0))

    def _events(
        self, event: GenerationEvent, news: News, reason: FinishReason | None, stop_reason: str | int | None
    ) -> list[ReplyEvent]:
        events = news.in_order(self._index)
        if reason is None:
            return events
        is_tool_calls = reason is FinishReason.STOP and self._calls is not None and self._calls.is_complete
        finish = Finish(
            self._index,
            reason,
            stop_reason,
            self._num_tokens,
            self._num_reasoning_tokens,
            event.num_cached_tokens,
            is_tool_calls,
        )
        return [*events, finish]
