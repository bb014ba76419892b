"""Products with a weight matrix in which a row has the same bits whatever rows stand beside it (rule R1).

Over few inputs rows are multiplied as they come. Over many, always the same number of rows is multiplied at a time,
with rows of zeros for what is missing, and the weights are the left factor, which is less work for so few rows. A long
prompt pays with two to three times the time of one product. On some processors few inputs are as many: see `uncut`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.reference.uncut import filled_up, max_uncut_inputs, uncut_product
from qanat.kernels.row_padding import (
    FIXED_HEAD_ROWS,
    FIXED_ROWS,
    FIXED_WIDE_ROWS,
    ROW_GRANULE,
    padded_wide_rows,
)

MAX_TINY_SIZE = 2048
"""Numbers of a matrix that every row is multiplied with by itself."""

MAX_SMALL_SIZE = 16384
"""Numbers of a 16-bit matrix that is multiplied in fp32, which takes less time than calling the library for it."""

TILE_BYTES = 2**20
"""Rows of a narrow head are widened in tiles of this size, so that a tile stays in the core's cache."""


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Product of x [T, in] with the transposed weight [out, in] -> [T, out]; accumulated in fp32, rounded once."""
    num_rows, num_inputs = x.shape
    if weight.numel() <= MAX_TINY_SIZE:
        return _tiny_product(x, weight)
    is_wide = x.dtype == torch.float32
    if num_inputs <= max_uncut_inputs():
        if not is_wide and weight.numel() <= MAX_SMALL_SIZE:
            return product(x.float(), weight.float()).to(x.dtype)
        parts = [uncut_product(part, weight) for part in x.split(ROW_GRANULE)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)
    out = x.new_empty(num_rows, weight.shape[0])
    step = FIXED_WIDE_ROWS if is_wide else FIXED_ROWS
    for start in range(0, num_rows, step):
        part = x[start : start + step]
        columns = torch.mm(weight, filled_up(part, step).t())
        out[start : start + step] = columns[:, : len(part)].t()
    return out


def wide_product(x: Tensor, weight: Tensor) -> Tensor:
    """The same of x fp32 with a result in fp32; a narrow weight is widened tile by tile."""
    num_rows, num_inputs = x.shape
    num_outputs = weight.shape[0]
    step = ROW_GRANULE if num_inputs <= max_uncut_inputs() else FIXED_HEAD_ROWS
    rows = filled_up(x, padded_wide_rows(num_rows))
    out = x.new_empty(rows.shape[0], num_outputs)
    tile_rows = num_outputs if weight.dtype == torch.float32 else max(TILE_BYTES // (4 * num_inputs), 1)
    for first in range(0, num_outputs, tile_rows):
        tile = weight[first : first + tile_rows].float()
        for start in range(0, num_rows, step):
            part = slice(start, start + step)
            out[part, first : first + tile_rows] = F.linear(rows[part], tile)
    return out[:num_rows]


def _tiny_product(x: Tensor, weight: Tensor) -> Tensor:
    shared = weight.float().t().expand(x.shape[0], -1, -1)
    return torch.bmm(x.float().unsqueeze(1), shared).squeeze(1).to(x.dtype)
