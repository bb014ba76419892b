"""Which tokens a row has seen, and how often it produced them: what penalties need, kept up to date per token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class TokenCounts:
    """Distinct token ids of prompt and output, with each one's number of occurrences in the output.

    Memory grows with the distinct tokens seen, not with the vocabulary; adding a token takes constant time.

    Args:
        prompt_token_ids: the prompt.
        output_token_ids: output so far.
    """

    def __init__(
        self, prompt_token_ids: npt.NDArray[np.int32], output_token_ids: npt.NDArray[np.int32]
    ) -> None:
        distinct = np.unique(np.concatenate([prompt_token_ids, output_token_ids]))
        self._ids = distinct.astype(np.int64)
        self._counts: npt.NDArray[np.float32] = np.zeros(len(distinct), dtype=np.float32)
        self._places = {int(token_id): i for i, token_id in enumerate(distinct)}
        self._length = len(distinct)
        self.add_output(output_token_ids.tolist())

    def add_output(self, token_ids: Sequence[int]) -> None:
        """Counts newly produced tokens."""
        for token_id in token_ids:
            place = self._places.setdefault(token_id, self._length)
            if place == self._length:
                self._append(token_id)
            self._counts[place] += 1

    @property
    def token_ids(self) -> npt.NDArray[np.int64]:
        """[n] distinct ids of prompt and output; a view, valid until the next `add_output`."""
        return self._ids[: self._length]

    @property
    def output_counts(self) -> npt.NDArray[np.float32]:
        """[n] occurrences in the output, in the order of `token_ids`; whole numbers."""
        return self._counts[: self._length]

    def _append(self, token_id: int) -> None:
        if self._length == len(self._ids):
            capacity = max(16, 2 * self._length)
            self._ids = np.resize(self._ids, capacity)
            self._counts = np.resize(self._counts, capacity)
        self._ids[self._length] = token_id
        self._counts[self._length] = 0
        self._length += 1
