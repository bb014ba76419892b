"""Streams of any engine: passed on as they are, with their text noted; continued ones are fitted to their beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from qanat.router.chunks import TextChoice, TextChunk, is_engine_gone, text_chunk
from qanat.router.filters import DONE, StreamBroken, StreamRecomputed
from qanat.router.http.sse import event_data
from qanat.router.journal import Journal
from qanat.router.usage_sum import UsageSum

RECOMPUTED = "recomputed"
"""stop_reason of a decoder that gives a request back."""


class TextFilter:
    """See EventFilter.

    Args:
        journal: of the client's stream, kept up to date.
        endpoint_name: for errors.
        count: is told how many tokens came, one for each piece of text.
        notes_text: keep the text; False where the stream cannot be continued anyway.
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
        continued: UsageSum | None = None,
    ) -> None:
        self.broken: StreamBroken | None = None
        self._journal = journal
        self._endpoint_name = endpoint_name
        self._count = count
        self._notes_text = notes_text
        self._continued = continued

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
        if chunk.error is not None:
            return self._take_error(event, chunk.error)
        if not journal.id and chunk.choices:
            journal.id, journal.created, journal.model = chunk.id, chunk.created, chunk.model
        if self._continued is not None:
            event = self._in_place(data)
        if chunk.usage is not None:
            journal.usage = chunk.usage
        if not chunk.choices:
            journal.has_usage_chunk = journal.has_usage_chunk or chunk.usage is not None
            return event
        return self._take_choices(event, data, chunk)

    def _take_choices(self, event: bytes, data: bytes, chunk: TextChunk) -> bytes:
        for choice in chunk.choices or ():
            self._note(choice, chunk)
            if choice.stop_reason == RECOMPUTED:
                message = f"endpoint {self._endpoint_name} gave the request back to be recomputed"
                self.broken = StreamRecomputed(message, self._endpoint_name, is_answered=True)
                return self._unfinished(data) if _text_of(choice) else b""
            if choice.finish_reason is not None:
                self._journal.choice(choice.index).is_finished = True
        return event

    def _note(self, choice: TextChoice, chunk: TextChunk) -> None:
        so_far = self._journal.choice(choice.index)
        delta = choice.delta
        text = _text_of(choice)
        if delta is not None:
            has_reasoning = bool(delta.reasoning or delta.reasoning_content)
            has_calls = bool(delta.tool_calls)
            so_far.has_reasoning = so_far.has_reasoning or has_reasoning
            so_far.has_calls = so_far.has_calls or has_calls
            if not (text or has_reasoning or has_calls):
                return
        elif not text:
            return
        if text and self._notes_text:
            so_far.texts.append(text)
        so_far.num_tokens += 1
        self._journal.num_new_tokens += 1
        self._count(1)

    def _in_place(self, data: bytes) -> bytes:
        """The chunk as the next one of the client's stream, whoever began that; empty if nothing is left of it."""
        fields: dict[str, Any] = msgspec.json.decode(data)
        journal = self._journal
        fields.update(id=journal.id, created=journal.created, model=journal.model)
        if fields.get("usage") is not None and self._continued is not None:
            fields["usage"] = self._continued.total(fields["usage"])
        choices = fields.get("choices") or []
        is_empty = bool(choices)
        for choice in choices:
            delta = choice.get("delta")
            if isinstance(delta, dict) and choice.get("index", 0) in journal.choices:
                if delta.pop("role", None) is not None and not delta.get("content"):
                    delta.pop("content", None)
            has_news = bool(delta) or bool(choice.get("text")) or choice.get("finish_reason") is not None
            is_empty = is_empty and not has_news
        return b"" if is_empty else _event(fields)

    def _unfinished(self, data: bytes) -> bytes:
        """The chunk without the end that it tells of."""
        fields: dict[str, Any] = msgspec.json.decode(data)
        journal = self._journal
        fields.update(id=journal.id, created=journal.created, model=journal.model)
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


def _text_of(choice: TextChoice) -> str:
    if choice.text is not None:
        return choice.text
    content = choice.delta.content if choice.delta is not None else None
    return content if isinstance(content, str) else ""


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(fields)
