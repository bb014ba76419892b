"""What a request does to its logits before a token is chosen: masks, bias, penalties.

The order is vLLM's: allowed tokens, bad words, minimum length, bias; then the penalties, repetition over prompt
and output, frequency and presence over the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from qanat.core.sampling_params import SamplingParams
from qanat.worker.token_counts import TokenCounts


class LogitEdits:
    """The edits of one row, prepared once.

    Args:
        sampling: the request's settings.
        stop_token_ids: masked until `min_tokens` tokens are out.
        prompt_token_ids: the prompt.
        output_token_ids: output so far.
        num_valid_token_ids: number of logits in a row; ids from here on are ignored.
    """

    def __init__(
        self,
        sampling: SamplingParams,
        stop_token_ids: Sequence[int],
        prompt_token_ids: npt.NDArray[np.int32],
        output_token_ids: npt.NDArray[np.int32],
        num_valid_token_ids: int,
    ) -> None:
        self._sampling = sampling
        self._limit = num_valid_token_ids
        self._allowed = None if sampling.allowed_token_ids is None else self._ids(sampling.allowed_token_ids)
        self._stop_ids = self._ids(stop_token_ids)
        self._bad_words = [
            words for words in sampling.bad_words_token_ids if words and self._is_valid(words[-1])
        ]
        self._longest_bad_word = max((len(words) for words in self._bad_words), default=0)
        bias = {
            token_id: value
            for token_id, value in (sampling.logit_bias or {}).items()
            if self._is_valid(token_id)
        }
        self._bias_ids = self._ids(list(bias))
        self._bias = torch.tensor(list(bias.values()), dtype=torch.float32)
        self._counts = TokenCounts(prompt_token_ids, output_token_ids) if has_penalties(sampling) else None
        self._num_output_tokens = len(output_token_ids)
        self._tail: list[int] = output_token_ids[len(output_token_ids) - self._tail_length() :].tolist()

    @classmethod
    def for_row(
        cls,
        sampling: SamplingParams,
        stop_token_ids: Sequence[int],
        prompt_token_ids: npt.NDArray[np.int32],
        output_token_ids: npt.NDArray[np.int32],
        num_valid_token_ids: int,
    ) -> LogitEdits | None:
        """The row's edits, or None for a request that never edits its logits."""
        is_needed = (
            sampling.allowed_token_ids is not None
            or sampling.bad_words_token_ids
            or sampling.min_tokens > 0
            or sampling.logit_bias
            or has_penalties(sampling)
        )
        if not is_needed:
            return None
        return cls(sampling, stop_token_ids, prompt_token_ids, output_token_ids, num_valid_token_ids)

    @property
    def is_due(self) -> bool:
        """False if `apply` would change nothing now: only a minimum length was asked for and it is reached."""
        return (
            self._allowed is not None
            or bool(self._bad_words)
            or self._num_output_tokens < self._sampling.min_tokens
            or len(self._bias_ids) > 0
            or self._counts is not None
        )

    def add_output(self, token_ids: Sequence[int]) -> None:
        """Takes newly produced tokens into account."""
        self._num_output_tokens += len(token_ids)
        if self._counts is not None:
            self._counts.add_output(token_ids)
        if self._longest_bad_word:
            self._tail += token_ids
            del self._tail[: max(0, len(self._tail) - self._longest_bad_word + 1)]

    def apply(self, logits: Tensor) -> None:
        """Edits a row in place.

        Args:
            logits: [num_valid_token_ids] fp32.
        """
        if self._allowed is not None:
            kept = logits[self._allowed]
            logits.fill_(-math.inf)[self._allowed] = kept
        banned = [words[-1] for words in self._bad_words if self._is_about_to_say(words)]
        if banned:
            logits[banned] = -math.inf
        if self._num_output_tokens < self._sampling.min_tokens:
            logits[self._stop_ids] = -math.inf
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self._counts is not None:
            apply_penalties(logits, self._counts, self._sampling)

    def _is_about_to_say(self, words: Sequence[int]) -> bool:
        """True if the output ends with all of the sequence but its last token."""
        prefix = list(words[:-1])
        return len(prefix) <= len(self._tail) and self._tail[len(self._tail) - len(prefix) :] == prefix

    def _tail_length(self) -> int:
        return min(self._num_output_tokens, max(0, self._longest_bad_word - 1))

    def _ids(self, token_ids: Sequence[int]) -> Tensor:
        return torch.tensor([i for i in token_ids if self._is_valid(i)], dtype=torch.int64)

    def _is_valid(self, token_id: int) -> bool:
        return 0 <= token_id < self._limit


def has_penalties(sampling: SamplingParams) -> bool:
    """True if any penalty has an effect."""
    return (
        sampling.repetition_penalty != 1.0
        or sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
    )


def apply_penalties(logits: Tensor, counts: TokenCounts, sampling: SamplingParams) -> None:
    """Applies the three penalties to a row in place.

    For token t with c occurrences in the output: x = x / r if x > 0 else x * r, if t is in prompt or output
    (Keskar et al. 2019, "CTRL"); then x -= f * c; then x -= p if c > 0 (OpenAI's API reference).

    Args:
        logits: [V] fp32.
        counts: tokens seen; ids from V on are left out.
        sampling: for repetition (r), frequency (f) and presence penalty (p).
    """
    ids, occurrences = torch.from_numpy(counts.token_ids), torch.from_numpy(counts.output_counts)
    if counts.token_ids.size and int(counts.token_ids.max()) >= len(logits):
        is_inside = ids < len(logits)
        ids, occurrences = ids[is_inside], occurrences[is_inside]
    values = logits[ids]
    repetition = sampling.repetition_penalty
    if repetition != 1.0:
        values = torch.where(values > 0, values / repetition, values * repetition)
    values -= sampling.frequency_penalty * occurrences
    values -= sampling.presence_penalty * (occurrences > 0)
    logits[ids] = values
