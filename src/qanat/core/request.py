"""A request: one object from admission to its terminal event."""

from __future__ import annotations

import enum

import msgspec

from qanat.core.constraint import Constraint
from qanat.core.sampling_params import SamplingParams
from qanat.core.timeouts import FIRST_TOKEN, QUEUE, TOTAL, Deadline, Timeouts


class FinishReason(str, enum.Enum):
    """Why a request ended; exactly one per request."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class RequestStatus(enum.IntEnum):
    """Where a request is in its life."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3


class Request(msgspec.Struct, kw_only=True):
    """What is to be computed, and how far it has come.

    A request whose `output_token_ids` is not empty at admission is continued, not started: preemption and
    continuation after a failure use this one road. There is no prefill or decode mode: a request has
    `num_computed_tokens` and wants `num_tokens`.

    Attributes:
        request_id: unique among live requests.
        prompt_token_ids: the prompt, at least one token.
        sampling: how tokens are chosen; `sampling.n` is 1 here, the front end fans out.
        seed: 64-bit noise seed, fixed at admission and carried wherever the request goes.
        choice_index: which of the n sequences of one API request this is.
        output_token_ids: generated so far, prior output included.
        stop_token_ids: tokens that end the request: the model's eos ids (unless ignored) and the request's own.
        priority: lower runs first under the priority policy.
        arrival_time_s: seconds on the admitting process's monotonic clock (one host, one clock).
        timeouts: how long it may take from then on, in parts.
        cache_salt: keeps prefixes of different owners apart.
        owner: whose request it is; waiting owners take turns.
        boundaries: positions in the prompt at which later prompts are likely to part from it: where the last user turn
            and the reply begin.
        constraint: the compiled form of `sampling.structured_outputs`.
        num_computed_tokens: tokens whose KV and state are in the cache.
        num_cached_tokens: how many a prefix hit supplied when it first began.
        num_preemptions: how often it was preempted.
        status: see RequestStatus.
        row: the batch row while running, else -1.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    seed: int
    choice_index: int = 0
    output_token_ids: list[int] = msgspec.field(default_factory=list)
    stop_token_ids: list[int] = msgspec.field(default_factory=list)
    priority: int = 0
    arrival_time_s: float = 0.0
    timeouts: Timeouts = Timeouts()
    cache_salt: str = ""
    owner: str = ""
    boundaries: list[int] = msgspec.field(default_factory=list)
    constraint: Constraint | None = None
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    status: RequestStatus = RequestStatus.WAITING
    row: int = -1

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.output_token_ids)

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: prompt and output."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def deadlines(self) -> list[Deadline]:
        """When its time is up, for each part that is bounded: queue, first token, total."""
        timeouts = self.timeouts
        spans = (
            (QUEUE, timeouts.queue_s),
            (FIRST_TOKEN, timeouts.first_token_s),
            (TOTAL, timeouts.total_s),
        )
        arrival_s = self.arrival_time_s
        return [Deadline(arrival_s + span_s, param, span_s) for param, span_s in spans if span_s is not None]

    @property
    def max_total_tokens(self) -> int:
        """The length at which it must stop; the front end has always set max_tokens by then."""
        assert self.sampling.max_tokens is not None
        return self.num_prompt_tokens + self.sampling.max_tokens
