"""How many prefill tokens fit into the time for which decodes may be held up."""

from __future__ import annotations

MIN_PREFILL_TOKENS = 64
"""Prefill tokens that a step may always have, whatever the estimate says: prompts never starve."""

# A new observation of so many prefill tokens counts as much as everything before it.
HALF_WEIGHT_TOKENS = 512
DECODE_WEIGHT = 0.2

MIN_MEASURED_STEPS = 4
MIN_MEASURED_TOKENS = 512


class PrefillPace:
    """Running estimate of the seconds that a prefill token adds to a step.

    A step's duration holds its decodes too. The duration of steps without prefill is tracked and taken off, but never
    more than half of a step: taken off in full, a stale value could make prefill look free; not taken off, slow
    decodes would make prefill look slow, chunks would shrink, and smaller chunks would look slower still.
    """

    def __init__(self) -> None:
        self._decode_step_s = 0.0
        self._num_steps = 0
        self._num_tokens = 0
        self.s_per_token = 0.0

    @property
    def is_measured(self) -> bool:
        """True once enough prefill was seen to refuse work on the strength of it; the first steps may be slow ones."""
        return self._num_steps >= MIN_MEASURED_STEPS and self._num_tokens >= MIN_MEASURED_TOKENS

    def observe(self, num_prefill_tokens: int, duration_s: float) -> None:
        """Takes in one step."""
        if num_prefill_tokens == 0:
            weight = DECODE_WEIGHT if self._decode_step_s else 1.0
            self._decode_step_s += weight * (duration_s - self._decode_step_s)
            return
        self._num_steps += 1
        self._num_tokens += num_prefill_tokens
        prefill_s = max(duration_s - self._decode_step_s, duration_s / 2)
        weight = num_prefill_tokens / (num_prefill_tokens + HALF_WEIGHT_TOKENS) if self.s_per_token else 1.0
        self.s_per_token += weight * (prefill_s / num_prefill_tokens - self.s_per_token)

    def max_tokens(self, stall_s: float) -> int | None:
        """Prefill tokens that fit into `stall_s`, at least MIN_PREFILL_TOKENS; None while nothing is known."""
        if self.s_per_token <= 0.0:
            return None
        return max(MIN_PREFILL_TOKENS, int(stall_s / self.s_per_token))
