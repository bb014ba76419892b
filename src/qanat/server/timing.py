"""Where the time of a request went, for its answer."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestTiming
from qanat.core.prefix_report import PrefixReport


class Timing(msgspec.Struct, frozen=True):
    """Seconds on the server's monotonic clock; over several choices the longest of each.

    Attributes:
        queue_s: from arrival at the engine to the first step; None if nothing was computed.
        prefill_s: from the first step to the first output token; None likewise.
        decode_s: from the first to the last output token.
        first_token_s: from the complete request body to the first output token of any choice; None without one.
        total_s: from the complete request body to the end.
        cached_tokens: prompt tokens that the prefix cache supplied.
        prefix: where the hit of the first choice ended, and why; None if nothing was computed.
    """

    queue_s: float | None
    prefill_s: float | None
    decode_s: float
    first_token_s: float | None
    total_s: float
    cached_tokens: int
    prefix: PrefixReport | None = None


class Stopwatch:
    """Times one request from now on; sees every event of the engine about it.

    Attributes:
        tap: is shown the events too.
    """

    def __init__(self) -> None:
        self.tap: Callable[[GenerationEvent], None] | None = None
        self._start_s = time.monotonic()
        self._first_token_s: float | None = None
        self._queue_s: float | None = None
        self._prefill_s: float | None = None
        self._decode_s = 0.0
        self._prefix: PrefixReport | None = None

    def add(self, event: GenerationEvent) -> None:
        """Takes an event."""
        if self.tap is not None:
            self.tap(event)
        if event.token_ids and self._first_token_s is None:
            self._first_token_s = time.monotonic() - self._start_s
        self.add_times(event.timing)
        if self._prefix is None:
            self._prefix = event.prefix

    def add_times(self, timing: RequestTiming | None) -> None:
        """Takes a choice's times as the engine has them, at its first token and at its end."""
        if timing is not None:
            self._queue_s = max(self._queue_s or 0.0, timing.queue_s)
            self._prefill_s = max(self._prefill_s or 0.0, timing.prefill_s)
            self._decode_s = max(self._decode_s, timing.decode_s)

    def read(self, num_cached_tokens: int) -> Timing:
        """The times up to now."""
        return Timing(
            _rounded(self._queue_s),
            _rounded(self._prefill_s),
            round(self._decode_s, 6),
            _rounded(self._first_token_s),
            round(time.monotonic() - self._start_s, 6),
            num_cached_tokens,
            self._prefix,
        )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
