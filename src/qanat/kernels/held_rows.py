"""Rows of a step that a linear-attention layer must be able to take back."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class HeldRows(NamedTuple):
    """One layer's rows whose tokens are drafts until they are verified (rule R8): the state does not absorb them.

    What it needs to absorb them later is kept instead, K rows at most: their inputs and gates, rounded as the state
    holds them, so that a row absorbed later leaves the bits that it would have left at once.

    Attributes:
        inputs: [S, K, C] raw inputs of the convolution, in the type of its state.
        gates: [S, K, 2, HV] fp32: log-decay and write strength.
        accepted: [R, 2] int32 in the host's memory, (first, number): the rows held at its state that a request absorbs
            now, before its rows of this step. All others are forgotten.
        are_held: [R] int32 in the host's memory: 1 where this step's rows are held in their turn.
    """

    inputs: Tensor
    gates: Tensor
    accepted: Tensor
    are_held: Tensor
