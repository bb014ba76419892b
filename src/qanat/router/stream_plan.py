"""What each engine of a stream is asked for, and what is done to its events: by tokens, by text, or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from qanat.router.filters import DONE_EVENT, EventFilter
from qanat.router.journal import Journal
from qanat.router.model import Call, Endpoint, EngineKind
from qanat.router.pool import Pool
from qanat.router.resume_qanat import TokenLeg, TokenResumer
from qanat.router.resume_text import MARK, TextResumer
from qanat.router.running_counts import RunningCounts
from qanat.router.text_filter import TextFilter
from qanat.router.token_filter import TokenFilter
from qanat.router.usage_sum import UsageSum, added


class StreamPlan:
    """The first engine decides how the stream can be continued: Qanat by tokens, others by text.

    Args:
        call: the client's request.
        journal: of its stream.
        pool: of the engines.
    """

    def __init__(self, call: Call, journal: Journal, pool: Pool) -> None:
        self._call = call
        self._journal = journal
        self._pool = pool
        self._tokens = TokenResumer(call, journal)
        self._text = TextResumer(call, journal)
        self._has_tokens: bool | None = None
        self._legs: deque[TokenLeg] = deque()
        self._is_continued = False
        self._elapsed_s = 0.0
        self._text_changes: dict[str, Any] = {}
        self._counts = RunningCounts(call.fields or {})
        self._num_prior_tokens = 0
        self._usage: dict[str, Any] | None = None
        self._mark = b""
        self._has_counts = False

    def _goes_by_tokens(self, endpoint: Endpoint) -> bool:
        if self._is_continued and self._has_tokens is not None:
            return self._has_tokens
        return endpoint.kind is EngineKind.QANAT and not self._tokens.refusal()

    def changes(self, endpoint: Endpoint) -> Mapping[str, Any]:
        """To the body of the request to this engine."""
        if self._goes_by_tokens(endpoint):
            return self._legs[0].changes if self._is_continued else self._tokens.first_leg().changes
        self._has_counts = endpoint.kind is EngineKind.VLLM and not self._text.request_refusal()
        return {**self._text_changes, **self._counts.changes} if self._has_counts else self._text_changes

    def filter(self, endpoint: Endpoint, count: Callable[[int], None]) -> EventFilter:
        """For the events of this engine, which has begun to answer."""
        self._has_tokens = self._goes_by_tokens(endpoint)
        if not self._has_tokens:
            return TextFilter(
                self._journal,
                endpoint.name,
                count,
                notes_text=not self._text.request_refusal(),
                counts=self._counts if self._has_counts else None,
                continued=UsageSum(self._num_prior_tokens) if self._is_continued else None,
            )
        leg = self._legs[0] if self._is_continued else TokenLeg({})
        return TokenFilter(
            self._journal,
            endpoint.name,
            count,
            shows_ids=self._tokens.shows_ids,
            muted=leg.muted,
            index_shift=leg.index_shift,
            is_continued=self._is_continued,
            keeps_end=leg.keeps_end,
            usage_before=self._usage,
        )

    def has_ended_part(self, events: EventFilter) -> bool:
        """The engine has done all that it was asked for, and the stream needs another for the rest."""
        if not isinstance(events, TokenFilter) or not events.is_done or len(self._legs) < 2:
            return False
        leg = self._legs.popleft()
        self._call_usage(events)
        return not leg.keeps_end

    def _call_usage(self, events: TokenFilter) -> None:
        if events.usage is not None:
            self._usage = added(self._usage, events.usage) if self._usage is not None else dict(events.usage)

    def is_ended(self) -> bool:
        """The client has everything but the mark of the end."""
        return self._tokens.is_ended if self._has_tokens else self._text.is_ended

    def ending(self) -> bytes:
        """What is due once all choices have ended: token counts that were lost, and the mark of the end."""
        return (b"" if self._has_tokens else self._text.lost_usage()) + DONE_EVENT

    def refusal(self) -> str:
        """Why the stream cannot be continued; empty if it can."""
        if self._has_tokens:
            return self._tokens.refusal()
        return "" if self._text.is_fresh else self._text.refusal()

    def next_part(self, elapsed_s: float) -> None:
        """The stream broke: the next engine goes on from what the client has."""
        self._is_continued = True
        if self._has_tokens:
            self._usage = None
            self._legs = deque(self._tokens.next_legs(elapsed_s))
        else:
            self._text_changes = self._text.changes(elapsed_s)
            self._journal.forget_untold()
            self._num_prior_tokens = self._journal.num_tokens
            self._mark = b"" if self._text.is_fresh else MARK

    def mark(self) -> bytes:
        """What is put before the first event of an engine that goes on from text, once."""
        mark, self._mark = self._mark, b""
        return mark

    def unfit(self, exclude: set[Endpoint]) -> set[Endpoint]:
        """Those to be left out, with engines that cannot go on with a stream of tokens."""
        if not self._has_tokens:
            return exclude
        others = {each for each in self._pool.members if each.kind is not EngineKind.QANAT}
        return exclude | others
