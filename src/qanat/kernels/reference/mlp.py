"""Products with weight matrices, and what stands directly around them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.quantised import QuantisedMatrix
from qanat.kernels.reference import quantised
from qanat.kernels.reference.elementwise import elementwise
from qanat.kernels.reference.products import product, wide_product


def embedding(
    token_ids: Tensor, weight: Tensor | QuantisedMatrix, dtype: torch.dtype | None = None
) -> Tensor:
    """One row of the table per token; `dtype` is for quantised tables only."""
    if not isinstance(weight, Tensor):
        return quantised.embedding(token_ids, weight, dtype or torch.float32)
    return weight.index_select(0, token_ids)


def linear(x: Tensor, weight: Tensor | QuantisedMatrix) -> Tensor:
    """Product with the transposed weight; accumulated in fp32, rounded once."""
    if not isinstance(weight, Tensor):
        return quantised.linear(x, weight)
    return product(x, weight)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The gated unit silu(gate) * up."""
    return elementwise(F.silu, gate) * up


def logits(hidden: Tensor, weight: Tensor | QuantisedMatrix) -> Tensor:
    """Scores in fp32: products of the narrow inputs, accumulated and kept wide."""
    if not isinstance(weight, Tensor):
        return quantised.wide_product(hidden, weight)
    return wide_product(hidden.float(), weight)
