"""Charges owners for their requests' tokens (S10): for the output that is expected first, for what comes in the end."""

from __future__ import annotations

from qanat.scheduler.live_request import LiveRequest
from qanat.scheduler.waiting_queue import WaitingQueue

PORTION = 64
"""Output tokens that are charged at a time once a request has made more than was expected of it."""
UNKNOWN_OUTPUT = 256
"""Output tokens that are expected of a request before any has ended."""


class OutputBill:
    """Keeps what each request's owner has paid for ahead, so that a turn costs what it will bring about.

    Were output charged when it is complete, an owner of short prompts and long outputs would have all rows before
    any of it counted.
    """

    def __init__(self, waiting: WaitingQueue) -> None:
        self._waiting = waiting

    def open(self, live: LiveRequest, num_prompt_tokens: int) -> None:
        """A request enters for the first time; so many of its known tokens are to be computed."""
        mean = self._waiting.mean_output(live.request.owner)
        num_expected = UNKNOWN_OUTPUT if mean is None else round(mean)
        live.num_prepaid = min(num_expected, _num_left(live))
        self._waiting.charge(live.request.owner, num_prompt_tokens + live.num_prepaid)

    def extend(self, live: LiveRequest) -> None:
        """Charges the next portion of a request that has made more than was paid for."""
        num_tokens = min(PORTION, _num_left(live))
        self._waiting.charge(live.request.owner, num_tokens - live.num_prepaid)
        live.num_prepaid = num_tokens

    def close(self, live: LiveRequest) -> None:
        """A request ends: its owner gets back what it did not make."""
        if live.first_scheduled_s is None:
            return
        self._waiting.charge(live.request.owner, -live.num_prepaid)
        self._waiting.note_output(live.request.owner, live.request.num_output_tokens - live.num_prior_outputs)


def _num_left(live: LiveRequest) -> int:
    return max(0, live.request.max_total_tokens - live.request.num_tokens)
