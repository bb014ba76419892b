"""Streams of any engine: passed on as they are, with their text noted; continued ones are fitted to their beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from qanat.router.chunks import Delta, TextChoice, TextChunk, error_of, has_value, is_engine_gone, text_chunk
from qanat.router.filters import DONE, StreamBroken, StreamRecomputed
from qanat.router.http.sse import event_data
from qanat.router.journal import ChoiceSoFar, Journal
from qanat.router.running_counts import RunningCounts
from qanat.router.usage_sum import UsageSum

RECOMPUTED = "recomputed"
"""stop_reason of a decoder that gives a request back."""
ABORTED = "abort"
"""finish_reason of a request that an engine ended itself, as when it is shut down."""


class TextFilter:
    """See EventFilter.

    Args:
        journal: of the client's stream, kept up to date.
        endpoint_name: for errors.
        count: is told how many tokens came.
        notes_text: keep the text, and believe the counts of its chunks; False where the stream has several choices or
            cannot be continued anyway. Where chunks have no counts each is taken for a token, also one without text:
            engines send these for parts of a character.
        counts: which the engine was asked for in every chunk; None for none.
        continued: adds up the usage of a stream whose beginning the client has from another engine; None for a
            stream that begins here.
    """

    def __init__(
        self,
        journal: Journal,
        endpoint_name: str,
        count: Callable[[int], None],
        *,
        notes_text: bool,
        counts: RunningCounts | None = None,
        continued: UsageSum | None = None,
    ) -> None:
        self.broken: StreamBroken | None = None
        self._journal = journal
        self._endpoint_name = endpoint_name
        self._count = count
        self._notes_text = notes_text
        self._counts = counts
        self._continued = continued
        self._num_before = journal.num_tokens

    def take(self, event: bytes) -> bytes:
        """See EventFilter."""
        data = event_data(event)
        if data is None:
            return event
        journal = self._journal
        if data == DONE:
            return self._take_done(event)
        chunk = text_chunk(data)
        if chunk is None:
            return event
        error = error_of(chunk)
        if error is not None:
            return self._take_error(event, error)
        if not journal.id and chunk.choices:
            journal.id, journal.created, journal.model = chunk.id, chunk.created, chunk.model
        if chunk.usage is not None:
            event = self._take_usage(event, chunk, chunk.usage)
        if self._continued is not None and event:
            event = self._in_place(data)
        return self._take_choices(event, chunk) if chunk.choices else event

    def _take_usage(self, event: bytes, chunk: TextChunk, usage: dict[str, Any]) -> bytes:
        journal = self._journal
        journal.usage = self._continued.total(usage) if self._continued is not None else usage
        journal.has_usage_chunk = journal.has_usage_chunk or not chunk.choices
        if self._counts is None or not self._counts.hides(has_choices=bool(chunk.choices)):
            return event
        return self._counts.without(event, chunk.object) if chunk.choices else b""

    def _take_choices(self, event: bytes, chunk: TextChunk) -> bytes:
        for choice in chunk.choices or ():
            self._note(choice, chunk)
            self.broken = self._given_up(choice)
            if self.broken is not None:
                return self._unfinished(event) if _text_of(choice) else b""
            if choice.finish_reason is not None:
                self._journal.choice(choice.index).is_finished = True
        return event

    def _given_up(self, choice: TextChoice) -> StreamBroken | None:
        name = self._endpoint_name
        if choice.stop_reason == RECOMPUTED:
            return StreamRecomputed(
                f"endpoint {name} gave the request back to be recomputed", name, is_answered=True
            )
        if choice.finish_reason == ABORTED:
            return StreamBroken(f"endpoint {name} ended the request before its end", name, is_answered=True)
        return None

    def _note(self, choice: TextChoice, chunk: TextChunk) -> None:
        so_far = self._journal.choice(choice.index)
        delta = choice.delta or _NO_DELTA
        text = _text_of(choice)
        has_reasoning = bool(delta.reasoning or delta.reasoning_content)
        has_calls = bool(delta.tool_calls)
        so_far.has_reasoning = so_far.has_reasoning or has_reasoning
        so_far.has_calls = so_far.has_calls or has_calls
        is_told = bool(text) or has_reasoning or has_calls
        is_opening = delta.role is not None and not is_told
        if not is_opening and (is_told or choice.finish_reason is None):
            self._count_tokens(so_far, chunk)
        if text and self._notes_text:
            so_far.texts.append(text)
        if is_told or has_value(choice.token_ids) or has_value(choice.logprobs):
            so_far.has_news = True
            self._journal.num_new_tokens += max(so_far.num_tokens - so_far.num_told, 0)
            so_far.num_told = so_far.num_tokens

    def _count_tokens(self, so_far: ChoiceSoFar, chunk: TextChunk) -> None:
        counted = chunk.usage.get("completion_tokens") if chunk.usage is not None else None
        num_tokens = so_far.num_tokens + 1
        if self._notes_text and isinstance(counted, int):
            num_tokens = self._num_before + counted
        if num_tokens > so_far.num_tokens:
            self._count(num_tokens - so_far.num_tokens)
            so_far.num_tokens = num_tokens

    def _in_place(self, data: bytes) -> bytes:
        """The chunk as the next one of the client's stream, whoever began that; empty if nothing is left of it."""
        fields: dict[str, Any] = msgspec.json.decode(data)
        journal = self._journal
        fields.update(id=journal.id, created=journal.created, model=journal.model)
        choices = fields.get("choices") or []
        if fields.get("usage") is not None:
            fields["usage"] = journal.usage
            if self._counts is not None and self._counts.hides(has_choices=bool(choices)):
                self._counts.strip(fields)
        is_empty = bool(choices)
        for choice in choices:
            is_known = choice.get("index", 0) in journal.choices
            if is_known:
                choice.pop("prompt_token_ids", None)
                fields.pop("prompt_token_ids", None)
            delta = choice.get("delta")
            if isinstance(delta, dict) and is_known:
                if delta.pop("role", None) is not None and not delta.get("content"):
                    delta.pop("content", None)
            news = (delta, *(choice.get(name) for name in _NEWS))
            is_empty = is_empty and not any(news)
        return b"" if is_empty else _event(fields)

    def _unfinished(self, event: bytes) -> bytes:
        """The chunk without the end that it tells of."""
        fields: dict[str, Any] = msgspec.json.decode(event_data(event) or b"{}")
        for choice in fields["choices"]:
            choice.update(finish_reason=None, stop_reason=None)
        return _event(fields)

    def _take_done(self, event: bytes) -> bytes:
        if self._journal.is_failed:
            return event
        choices = self._journal.choices.values()
        if choices and all(so_far.is_finished for so_far in choices):
            self._journal.is_done = True
            return event
        self.broken = StreamBroken(
            f"endpoint {self._endpoint_name} ended its stream before its choices",
            self._endpoint_name,
            is_answered=True,
        )
        return b""

    def _take_error(self, event: bytes, error: object) -> bytes:
        if is_engine_gone(error):
            message = f"endpoint {self._endpoint_name} failed in mid-stream: {error}"
            self.broken = StreamBroken(message, self._endpoint_name, is_answered=True)
            return b""
        self._journal.is_failed = True
        return event


_NEWS = ("text", "finish_reason", "logprobs", "token_ids")
_NO_DELTA = Delta()


def _text_of(choice: TextChoice) -> str:
    if choice.text is not None:
        return choice.text
    content = choice.delta.content if choice.delta is not None else None
    return content if isinstance(content, str) else ""


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(fields)
