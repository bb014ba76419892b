"""A request from `add` to its terminal output, and its stays in the batch."""

from __future__ import annotations

from qanat.core.batch import ScheduledRow
from qanat.core.outputs import RequestTiming
from qanat.core.prefix_report import PrefixReport
from qanat.core.request import Request

Rank = tuple[int, float, int]


class LiveRequest:
    """What the scheduler knows about a request beside the request itself, for as long as it lives.

    Attributes:
        request: the request.
        number: order of `add`, unique.
        rank: order of service, smaller first: priority (0 for all under "fcfs"), arrival, number.
        max_computed_tokens: tokens that its blocks may ever have to hold. The last output token is never computed.
        stop_token_ids: as a set.
        running: the present stay in the batch, None while it waits.
        num_prepaid: output tokens that its owner was charged for and that are not made yet; below 0 if more are made.
        num_prior_outputs: output tokens that it brought along.
        num_prompt_logprobs: entries reported so far; a recomputed prompt yields them again.
        num_drafted, num_accepted: drafts verified for it so far, and those of them that became output.
        draft_surplus: by how much more of its drafts are right than of others', estimated.
        num_lost_tokens: that it had computed when it was last preempted.
        prefix_report: what the prefix cache did for it when it first began; None until then.
        first_scheduled_s, first_token_s, last_token_s: on the scheduler's clock, None until then.
    """

    __slots__ = (
        "draft_surplus",
        "first_scheduled_s",
        "first_token_s",
        "last_token_s",
        "max_computed_tokens",
        "num_accepted",
        "num_drafted",
        "num_lost_tokens",
        "num_prepaid",
        "num_prior_outputs",
        "num_prompt_logprobs",
        "number",
        "prefix_report",
        "rank",
        "request",
        "running",
        "stop_token_ids",
    )

    def __init__(self, request: Request, number: int, is_priority_policy: bool) -> None:
        self.request = request
        self.number = number
        self.rank: Rank = (request.priority if is_priority_policy else 0, request.arrival_time_s, number)
        self.max_computed_tokens = max_computed_tokens(request)
        self.stop_token_ids = frozenset(request.stop_token_ids)
        self.running: RunningRequest | None = None
        self.num_prepaid = 0
        self.num_prior_outputs = request.num_output_tokens
        self.num_prompt_logprobs = 0
        self.num_drafted = self.num_accepted = 0
        self.draft_surplus = 0.0
        self.num_lost_tokens = 0
        self.prefix_report: PrefixReport | None = None
        self.first_scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None

    def timing(self, now_s: float) -> RequestTiming:
        """Durations so far; a phase that has not ended lasts until now."""
        arrival_s = self.request.arrival_time_s
        if self.first_scheduled_s is None:
            return RequestTiming(queue_s=now_s - arrival_s)
        queue_s = self.first_scheduled_s - arrival_s
        if self.first_token_s is None or self.last_token_s is None:
            return RequestTiming(queue_s=queue_s, prefill_s=now_s - self.first_scheduled_s)
        return RequestTiming(
            queue_s=queue_s,
            prefill_s=self.first_token_s - self.first_scheduled_s,
            decode_s=self.last_token_s - self.first_token_s,
        )


class RunningRequest:
    """One stay of a request in a batch row, from admission to finish or preemption.

    Attributes:
        live: the request's record.
        request, rank, output_token_ids, stop_token_ids: the record's, one step nearer: each step reads them.
        row: batch row.
        decode_row: the row's usual entry in a batch, one token and no new block, built once.
        num_uncomputed: known tokens not yet scheduled. 0 while the next token is being computed, -1 while the one after
            that has been scheduled too.
        num_spare: reserved places that no scheduled token has taken.
        num_unsure: of those, places of drafts in a step that has not been answered, of which any number may be taken.
        num_outputs_left: output tokens until max_tokens.
        num_prompt_logprobs: entries that this stay has yielded.
        is_growing: its blocks may not suffice until its end.
        is_decoding: its known tokens have all been scheduled but for the newest.
        is_unindexed: its prompt has been scheduled, and the cache has not been told.
        is_running: False once the stay is over; results that are still on their way are then ignored.
    """

    __slots__ = (
        "decode_row",
        "is_decoding",
        "is_growing",
        "is_running",
        "is_unindexed",
        "live",
        "num_outputs_left",
        "num_prompt_logprobs",
        "num_spare",
        "num_uncomputed",
        "num_unsure",
        "output_token_ids",
        "rank",
        "request",
        "row",
        "stop_token_ids",
    )

    def __init__(self, live: LiveRequest, row: int, num_reserved: int) -> None:
        request = live.request
        max_tokens = request.sampling.max_tokens
        assert max_tokens is not None  # `add` has checked it
        self.live = live
        self.request = request
        self.rank = live.rank
        self.output_token_ids = request.output_token_ids
        self.stop_token_ids = live.stop_token_ids
        self.row = row
        self.decode_row = ScheduledRow(row, 1, [])
        self.num_uncomputed = request.num_tokens - request.num_computed_tokens
        self.num_spare = num_reserved - request.num_computed_tokens
        self.num_unsure = 0
        self.num_outputs_left = max_tokens - request.num_output_tokens
        self.num_prompt_logprobs = 0
        self.is_growing = live.max_computed_tokens > num_reserved
        self.is_decoding = False
        self.is_unindexed = False
        self.is_running = True

    def take_scheduled(self, num_tokens: int) -> None:
        """Counts tokens as computed from the moment at which they are scheduled."""
        self.num_uncomputed -= num_tokens
        self.num_spare -= num_tokens
        self.request.num_computed_tokens += num_tokens


def max_computed_tokens(request: Request) -> int:
    """The most tokens of a request that are ever in the cache: all but the last output token."""
    return max(request.num_prompt_tokens, request.max_total_tokens - 1)
