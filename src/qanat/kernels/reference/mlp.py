"""Products with weight matrices, and what stands directly around them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.reference.elementwise import elementwise
from qanat.kernels.reference.products import product, wide_product


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """One row of the table per token."""
    return weight.index_select(0, token_ids)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Product with the transposed weight; accumulated in fp32, rounded once."""
    return product(x, weight)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The gated unit silu(gate) * up."""
    return elementwise(F.silu, gate) * up


def logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """Scores in fp32: products of the narrow inputs, accumulated and kept wide."""
    return wide_product(hidden.float(), weight)
