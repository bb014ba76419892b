"""What requests took lately, for whoever watches the server: times and counts, no text and nobody's name."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from qanat.core.errors import QanatError
from qanat.server.responses import Usage
from qanat.server.timing import Timing

MAX_RECORDS = 64
"""Requests that are kept after their end, and the most that are shown."""
ID_LENGTH = 8
"""Characters of an id that are shown: enough to tell requests apart."""
GONE = "client_gone"
"""Code of a request whose client hung up."""

Reading = Callable[[], tuple[Timing, Usage]]


class RequestRecord(msgspec.Struct, frozen=True):
    """One request. Times are seconds on the server's monotonic clock; see `Timing` for those of its parts.

    Attributes:
        id: the beginning of its X-Request-Id.
        age_s: since it was ready for the engine.
        duration_s: until its end, or until now.
        is_running: it has not ended.
        queue_s, prefill_s, decode_s, first_token_s: None for what is not known yet or never was.
        num_prompt_tokens, num_cached_tokens, num_output_tokens: so far.
        code: of the error that ended it, "client_gone" if its client did; empty without one.
    """

    id: str
    age_s: float
    duration_s: float
    is_running: bool
    queue_s: float | None
    prefill_s: float | None
    decode_s: float
    first_token_s: float | None
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    code: str = ""


class RequestList(msgspec.Struct, frozen=True):
    """Answer of /requests: those that began last come first."""

    requests: list[RequestRecord]


@dataclass(eq=False)
class _Noted:
    """A request: when it began and ended, and where its figures are read."""

    request_id: str
    start_s: float
    read: Reading
    end_s: float | None = None
    code: str = ""

    def end(self, end_s: float, code: str) -> None:
        """Keeps the figures as they are now, and lets go of what tells them."""
        figures = self.read()
        self.read = lambda: figures
        self.end_s = end_s
        self.code = code

    def record(self, now_s: float) -> RequestRecord:
        timing, usage = self.read()
        return RequestRecord(
            self.request_id[:ID_LENGTH],
            round(now_s - self.start_s, 6),
            round((self.end_s or now_s) - self.start_s, 6),
            self.end_s is None,
            timing.queue_s,
            timing.prefill_s,
            timing.decode_s,
            timing.first_token_s,
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens,
            self.code,
        )


class RecentRequests:
    """Requests of one process: those that run, and the last that ended.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[_Noted, None] = {}  # in order, and quick to leave
        self._ended: deque[_Noted] = deque(maxlen=MAX_RECORDS)

    @contextlib.contextmanager
    def noted(self, request_id: str, read: Reading) -> Iterator[None]:
        """Notes a request while it runs, and how it ended.

        Args:
            request_id: as clients and logs know it.
            read: tells its figures up to now.
        """
        one = _Noted(request_id, self._clock(), read)
        self._running[one] = None
        code = GONE
        try:
            yield
            code = ""
        except QanatError as error:
            code = error.code
            raise
        except Exception:
            code = QanatError.code
            raise
        finally:
            del self._running[one]
            one.end(self._clock(), code)
            self._ended.append(one)

    def records(self) -> list[RequestRecord]:
        """At most MAX_RECORDS, those that began last first."""
        now_s = self._clock()
        running = list(self._running)[-MAX_RECORDS:]
        return newest(one.record(now_s) for one in (*running, *self._ended))


def newest(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """At most MAX_RECORDS of these, those that began last first."""
    return sorted(records, key=lambda one: one.age_s)[:MAX_RECORDS]
