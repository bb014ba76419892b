"""Products over few inputs, of as many rows as there are, where this processor's library never cuts their sums."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.row_padding import MAX_UNCUT_INPUTS, padded_rows, padded_wide_rows

TRIED_SHAPES = ((40, 64), (64, 40), (128, 128), (512, 128), (256, MAX_UNCUT_INPUTS))
"""Outputs and inputs of the products that are tried out: each differs from row to row on some processor."""
TRIED_ROWS = ((0, 1), (5, 7), (7, 12), (1, 18), (30, 63), (3, 103))
NUM_TRIED_ROWS = 192


def max_uncut_inputs() -> int:
    """Products over no more inputs than these keep a row's bits in `uncut_product`; 0 if this processor has none."""
    return MAX_UNCUT_INPUTS if _is_never_cut(torch.get_num_threads()) else 0


def uncut_product(x: Tensor, weight: Tensor) -> Tensor:
    """Product of x [T, in] with the transposed weight [out, in], T at most a granule -> [T, out]."""
    num_rows = x.shape[0]
    num_filled = padded_wide_rows(num_rows) if x.dtype == torch.float32 else padded_rows(num_rows)
    return F.linear(filled_up(x, num_filled), weight)[:num_rows]


def filled_up(x: Tensor, num_rows: int) -> Tensor:
    """The rows and others behind them, whatever these are; contiguous, as the library has other ways for strides."""
    num_own = x.shape[0]
    if num_own == num_rows:
        return x.contiguous()
    if num_own == 1:
        return x.expand(num_rows, -1).contiguous()
    return torch.cat((x, x.new_zeros(num_rows - num_own, x.shape[1])))


@functools.cache
def _is_never_cut(num_threads: int) -> bool:
    """Tried once for each number of threads, which the library cuts for too; takes milliseconds."""
    return all(
        _keeps_rows(num_outputs, num_inputs, dtype)
        for num_outputs, num_inputs in TRIED_SHAPES
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    )


def _keeps_rows(num_outputs: int, num_inputs: int, dtype: torch.dtype) -> bool:
    """Tries sums whose exact value is zero: all that is left of them is what their order makes of it."""
    generator = torch.Generator().manual_seed(num_inputs)
    half = torch.randn(num_outputs, num_inputs // 2, generator=generator)
    again = torch.randn(NUM_TRIED_ROWS, num_inputs // 2, generator=generator)
    x, weight = torch.cat((again, again), 1).to(dtype), torch.cat((half, -half), 1).to(dtype)
    whole = uncut_product(x, weight)
    return all(
        torch.equal(uncut_product(x[start:stop], weight), whole[start:stop]) for start, stop in TRIED_ROWS
    )
