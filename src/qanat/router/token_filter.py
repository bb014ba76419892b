"""Streams of Qanat: token ids are noted and taken out again, so that any cut of the stream can be resumed exactly.

An engine that sends token ids sends them in the last chunk of what belongs together, and sends chunks of ids without
text. The client sees neither unless it asked: what it gets is, byte for byte, the stream without ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from qanat.router.chunks import TokenChoice, error_of, is_engine_gone, token_chunk
from qanat.router.filters import DONE, StreamBroken
from qanat.router.http.sse import event_data
from qanat.router.journal import Journal
from qanat.router.usage_sum import added

# A quotation mark inside a JSON text has a backslash before it, so these can only be the fields themselves.
_IDS = b',"token_ids":['
_PROMPT_IDS = b',"prompt_token_ids":['
_CHOICES = b',"choices":['
_NO_NEWS = (
    b'"delta":{},"logprobs":null,"finish_reason":null',
    b'"text":"","logprobs":null,"finish_reason":null',
)
_INDEX = re.compile(rb',"choices":\[\{"index":(\d+)')
_MAX_HELD = 4096


class TokenFilter:
    """See EventFilter.

    Args:
        journal: of the client's stream, kept up to date.
        endpoint_name: for errors.
        count: is told how many tokens came.
        shows_ids: the client asked for token ids itself.
        muted: choices whose chunks are dropped, as the client has them already.
        index_shift: added to the index of every choice.
        is_continued: the client has the beginning of the stream from another engine.
        keeps_end: pass on the chunk with the usage and the mark of the end.
        usage_before: of other parts of the stream, added to the chunk with the usage.

    Attributes:
        usage: the last that the engine told.
        is_done: the mark of the end came.
    """

    def __init__(
        self,
        journal: Journal,
        endpoint_name: str,
        count: Callable[[int], None],
        *,
        shows_ids: bool,
        muted: Collection[int] = (),
        index_shift: int = 0,
        is_continued: bool = False,
        keeps_end: bool = True,
        usage_before: Mapping[str, Any] | None = None,
    ) -> None:
        self.broken: StreamBroken | None = None
        self._journal = journal
        self._endpoint_name = endpoint_name
        self._count = count
        self._shows_ids = shows_ids
        self._muted = muted
        self._index_shift = index_shift
        self._is_continued = is_continued
        self._keeps_end = keeps_end
        self._usage_before = usage_before
        self._held: list[bytes] = []
        self.usage: dict[str, Any] | None = None
        self.is_done = False

    def take(self, event: bytes) -> bytes:
        """See EventFilter."""
        data = event_data(event)
        if data is None:
            return event
        if data == DONE:
            return self._take_done(event)
        chunk = token_chunk(data)
        if chunk is None:
            return event
        error = error_of(chunk)
        if error is not None:
            return self._take_error(event, error)
        if chunk.usage is not None:
            self.usage = chunk.usage
        if not chunk.choices:
            return self._take_usage(event)
        choice = chunk.choices[0]
        if choice.index in self._muted:
            return b""
        if chunk.prompt_token_ids or choice.prompt_token_ids:
            self._journal.prompt_token_ids = chunk.prompt_token_ids or choice.prompt_token_ids
        return self._take_choice(self._in_place(event), choice)

    def _take_choice(self, event: bytes, choice: TokenChoice) -> bytes:
        journal = self._journal
        token_ids = choice.token_ids
        if token_ids is None and choice.finish_reason is None and len(self._held) < _MAX_HELD:
            self._held.append(event)
            return b""
        if token_ids is None:
            journal.gap = "its engine sends no token ids"
        so_far = journal.choice(choice.index + self._index_shift)
        if token_ids:
            num_tokens = len(token_ids)
            so_far.token_ids += token_ids
            so_far.num_tokens += num_tokens
            journal.num_new_tokens += num_tokens
            self._count(num_tokens)
        if choice.finish_reason is not None:
            so_far.is_finished = True
        elif not self._shows_ids and token_ids is not None and any(mark in event for mark in _NO_NEWS):
            return self._released(b"")
        return self._released(event)

    def _released(self, event: bytes) -> bytes:
        if self._held:
            event = b"".join((*self._held, event)) if self._shows_ids else self._joined(event)
            self._held.clear()
            return event
        return event if self._shows_ids or not event else _without(_without(event, _IDS), _PROMPT_IDS)

    def _joined(self, event: bytes) -> bytes:
        return b"".join(_without(_without(each, _IDS), _PROMPT_IDS) for each in (*self._held, event))

    def _in_place(self, event: bytes) -> bytes:
        """The event as the next one of the client's stream, whoever began that."""
        journal = self._journal
        at = event.find(_CHOICES)
        if at < 0:
            return event
        if not journal.prefix:
            journal.prefix = event[:at]
        if not self._is_continued:
            return event
        rest = event[at:]
        if self._index_shift and (match := _INDEX.match(rest)):
            rest = b"%b%d%b" % (
                rest[: match.start(1)],
                int(match.group(1)) + self._index_shift,
                rest[match.end(1) :],
            )
        return journal.prefix + rest

    def _take_usage(self, event: bytes) -> bytes:
        if not self._keeps_end:
            return b""
        self._journal.has_usage_chunk = True
        event = self._in_place(event)
        return event if self._usage_before is None else self._summed(event, self._usage_before)

    def _summed(self, event: bytes, before: Mapping[str, Any]) -> bytes:
        fields = msgspec.json.decode(event_data(event) or b"{}")
        fields["usage"] = added(before, fields["usage"])
        return b"data: %b\n\n" % msgspec.json.encode(fields)

    def _take_done(self, event: bytes) -> bytes:
        if self._journal.is_failed:
            return event
        self.is_done = True
        if not self._keeps_end:
            return b""
        if not self._held and self._journal.choices and self._all_finished():
            self._journal.is_done = True
            return event
        self.broken = StreamBroken(
            f"endpoint {self._endpoint_name} ended its stream before its choices", self._endpoint_name
        )
        return b""

    def _all_finished(self) -> bool:
        return all(so_far.is_finished for so_far in self._journal.choices.values())

    def _take_error(self, event: bytes, error: object) -> bytes:
        if is_engine_gone(error):
            message = f"endpoint {self._endpoint_name} failed in mid-stream: {error}"
            self.broken = StreamBroken(message, self._endpoint_name, is_answered=True)
            return b""
        self._journal.is_failed = True
        return self._released(event)


def _without(event: bytes, field: bytes) -> bytes:
    """The event without a field whose value is a list of numbers, and which is never the first of its object."""
    at = event.find(field)
    if at < 0:
        return event
    return event[:at] + event[event.index(b"]", at) + 1 :]
