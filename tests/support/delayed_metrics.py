"""The figures of the delayed server, in the text form of Prometheus."""

from __future__ import annotations

QUEUE_S = 0.004
"""What each request is said to have waited in the queue."""


class Figures:
    """Counters since the start, which begin at odd numbers: only differences mean anything."""

    def __init__(self) -> None:
        self._num_requests = 7
        self._num_prompt_tokens = 1000
        self._num_drafts = 500
        self._num_accepted = 490

    def begin(self, num_prompt_tokens: int) -> None:
        """A request is there."""
        self._num_requests += 1
        self._num_prompt_tokens += num_prompt_tokens

    def end(self, num_tokens: int, num_drafts: int) -> None:
        """A request is over: half of its drafts were kept."""
        self._num_drafts += num_drafts
        self._num_accepted += num_drafts // 2

    def text(self) -> str:
        """What /metrics says."""
        queue = f"vllm:request_queue_time_seconds_sum {QUEUE_S * self._num_requests}\n"
        queue += f"vllm:request_queue_time_seconds_count {self._num_requests}\n"
        for bound in ("0.01", "+Inf"):
            queue += f'vllm:request_queue_time_seconds_bucket{{le="{bound}"}} {self._num_requests}\n'
        return (
            f"{queue}vllm:prompt_tokens_total {self._num_prompt_tokens}\n"
            f"vllm:spec_decode_num_drafts_total {self._num_drafts}\n"
            f"vllm:spec_decode_num_draft_tokens_total {self._num_drafts}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {self._num_accepted}\n"
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {self._num_accepted}\n'
        )
