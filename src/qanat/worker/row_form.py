"""The form of a row's output: masks before each choice, a matcher that follows what was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from qanat.core.constraint import Constraint, Matcher, MatcherFactory
from qanat.core.errors import StructuredOutputError

BITS_OF_BYTE: npt.NDArray[np.bool_] = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
).astype(np.bool_)
"""[256, 8]: the bits of every byte, lowest first."""


class FormBuffer:
    """Room for one mask, used by one row after the other.

    Args:
        num_valid_token_ids: tokens that can be chosen.

    Attributes:
        words: [ceil(V / 32)] int32, a set bit allows a token.
    """

    def __init__(self, num_valid_token_ids: int) -> None:
        num_words = -(-num_valid_token_ids // 32)
        self.words: npt.NDArray[np.int32] = np.zeros(num_words, dtype=np.int32)
        self._spare: npt.NDArray[np.int32] = np.zeros(num_words, dtype=np.int32)
        self._bits: npt.NDArray[np.bool_] = np.zeros((4 * num_words, 8), dtype=np.bool_)
        self._is_forbidden = torch.from_numpy(self._bits.reshape(-1))[:num_valid_token_ids]

    def mask(self, logits: Tensor) -> None:
        """Sets [V] logits to -inf where the mask forbids the token."""
        np.invert(self.words, out=self._spare)
        np.take(BITS_OF_BYTE, self._spare.view(np.uint8), axis=0, out=self._bits, mode="clip")
        logits.masked_fill_(self._is_forbidden.to(logits.device), -math.inf)

    def allows_only(self, stop_words: npt.NDArray[np.int32]) -> bool:
        """True if the mask allows none but the tokens of another mask's complement [ceil(V / 32)]."""
        np.bitwise_and(self.words, stop_words, out=self._spare)
        return not self._spare.any()


class RowForm:
    """Keeps one output in its form. An error is kept until it is asked for, as it ends that request only.

    Args:
        constraint: the form.
        factory: makes the matcher.
        buffer: room for masks.
        stop_token_ids: tokens that end the output.
        output_token_ids: output so far.

    Attributes:
        error: why the output cannot go on; empty while it can.
    """

    def __init__(
        self,
        constraint: Constraint,
        factory: MatcherFactory,
        buffer: FormBuffer,
        stop_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        self.error = ""
        self._buffer = buffer
        self._other_words = _all_but(stop_token_ids, len(buffer.words))
        self._matcher: Matcher | None = None
        try:
            self._matcher = factory.matcher(constraint)
        except StructuredOutputError as error:
            self.error = error.message
        self.add_output(output_token_ids)

    def add_output(self, token_ids: Sequence[int]) -> None:
        """Follows the tokens that were chosen."""
        if self._matcher is None:
            return
        try:
            for token_id in token_ids:
                self._matcher.consume(token_id)
        except StructuredOutputError as error:
            self._fail(error)

    def fill_mask(self) -> bool:
        """Puts what may come next into the buffer. False if every token may come, or after an error."""
        if self._matcher is None:
            return False
        try:
            return self._matcher.fill_mask(self._buffer.words)
        except StructuredOutputError as error:
            self._fail(error)
            return False

    @property
    def is_over(self) -> bool:
        """After `fill_mask`: only the end of the output may come."""
        return self._buffer.allows_only(self._other_words)

    def apply_mask(self, logits: Tensor) -> None:
        """After `fill_mask`: forbids in place what may not come.

        Args:
            logits: [V] fp32.
        """
        self._buffer.mask(logits)

    def _fail(self, error: StructuredOutputError) -> None:
        self.error = error.message
        self._matcher = None


def _all_but(token_ids: Sequence[int], num_words: int) -> npt.NDArray[np.int32]:
    """A mask of all tokens but these."""
    words: npt.NDArray[np.uint32] = np.full(num_words, 0xFFFFFFFF, dtype=np.uint32)
    for token_id in token_ids:
        if token_id // 32 < num_words:
            words[token_id // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token_id % 32))
    return words.view(np.int32)
