"""How patient the relay is: with engines, with retries before the first token, with continuations after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from qanat.router.http.upstream import Timeouts


class Pairing(str, Enum):
    """How a disaggregated pair moves the cache: the decoder PULLs it, or the prefiller PUSHes it layer by layer."""

    PULL = "pull"
    PUSH = "push"


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """Bounds of one request's way.

    Attributes:
        timeouts: towards engines; `idle_s` holds once an answer's first event is there, `first_byte_s` until then.
        max_retries: further attempts before the first token.
        retry_delay_s: before the second retry; doubled for each one after it. The first retry is immediate.
        is_continuing: go on elsewhere with streams that broke.
        max_continuations: in a row without a new token, after which a stream ends with an error.
        max_breaks: of one stream by engines that had begun with it, however much they sent: such a request may be
            what kills them.
        continuation_wait_s: how long a broken stream waits for an engine that can go on with it.
        max_buffered_bytes: of a whole answer; what is longer is passed on as it comes and cannot be retried.
        prefill_timeout_s: for the prefill leg of a pair, as a whole.
        pairing: which protocol the pairs speak.
    """

    timeouts: Timeouts = field(default_factory=Timeouts)
    max_retries: int = 2
    retry_delay_s: float = 0.05
    is_continuing: bool = True
    max_continuations: int = 5
    max_breaks: int = 8
    continuation_wait_s: float = 30.0
    max_buffered_bytes: int = 4 << 20
    prefill_timeout_s: float = 300.0
    pairing: Pairing = Pairing.PULL
