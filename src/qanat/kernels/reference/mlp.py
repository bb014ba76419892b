"""Products with weight matrices, and what stands directly around them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.row_padding import padded_rows

LOGITS_TILE_BYTES = 2**20
"""Rows of the head are widened to fp32 in tiles of this size, so that a tile stays in the core's cache."""


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """One row of the table per token."""
    return weight.index_select(0, token_ids)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Product with the transposed weight; accumulated in fp32, rounded once.

    For 16-bit types torch's CPU library compiles code for every number of rows that it meets and keeps it: about a
    millisecond and 0.7 MiB each. Zero rows bring the number up to one of a few, and change nothing in the others.
    """
    num_rows = x.shape[0]
    num_padded = num_rows if x.dtype == torch.float32 else padded_rows(num_rows)
    if num_padded == num_rows:
        return F.linear(x, weight)
    padded = x.new_zeros(num_padded, x.shape[1])
    padded[:num_rows] = x
    return F.linear(padded, weight)[:num_rows]


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The gated unit silu(gate) * up."""
    return F.silu(gate) * up


def logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """Scores in fp32: products of the narrow inputs, accumulated and kept wide."""
    wide = hidden.float()
    if weight.dtype == torch.float32:
        return F.linear(wide, weight)
    num_tokens = weight.shape[0]
    step = max(LOGITS_TILE_BYTES // (4 * weight.shape[1]), 1)
    out = torch.empty(num_tokens, hidden.shape[0], device=hidden.device)
    columns = wide.t().contiguous()
    for start in range(0, num_tokens, step):
        torch.mm(weight[start : start + step].float(), columns, out=out[start : start + step])
    return out.t().contiguous()
