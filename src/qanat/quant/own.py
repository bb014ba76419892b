"""Our own schemes: which matrices of a model become whole numbers, at load and in a checkpoint alike.

A CPU pays by the byte, so these quantise more than the recipes for accelerators do: the head, the embedding and the
delta net's projections too. What is small and steers much stays as it is: norms, routers, gates, the delta net's
decay.
"""

from __future__ import annotations

import enum

from torch import Tensor

from qanat.kernels.quantised import GROUP_SIZE, QuantisedMatrix
from qanat.quant.rounding import quantise_int4, quantise_int8

NEVER = ("mlp.gate", "shared_expert_gate", "in_proj_a", "in_proj_b")
"""Ends of the names of layers that stay in float."""

TABLES = ("lm_head", "embed_tokens")
"""Layers that are int8 in every scheme: their rounding shows in every token directly."""

ROW_PARALLEL = ("o_proj", "out_proj", "down_proj")
"""Ends of the names of matrices whose inputs ranks share."""


class Precision(enum.Enum):
    """What the weights of a layer become; activations are int8 with both."""

    INT8 = "int8"
    INT4 = "int4"

    @property
    def ascend_kind(self) -> str:
        """The kind of such a tensor in the description of an Ascend checkpoint."""
        return {"int8": "W8A8_DYNAMIC", "int4": "W4A8_DYNAMIC"}[self.value]

    def quantise(
        self, weight: Tensor, importance: Tensor | None = None, num_threads: int = 1
    ) -> QuantisedMatrix:
        """A matrix ([E,] out, in) rounded so; for the arguments and errors see `qanat.quant.rounding`."""
        if self is Precision.INT4:
            return quantise_int4(weight, importance, num_threads)
        return quantise_int8(weight, importance, num_threads)


def precision_of(scheme: str, layer: str, num_outputs: int, num_inputs: int) -> Precision | None:
    """What a scheme makes of a layer with a matrix, or of each matrix of a layer of experts; None leaves it in float.

    Args:
        scheme: its name, one of `qanat.config.quantization.AT_LOAD`.
        layer: its name in the model, such as "model.layers.0.mlp.experts".
        num_outputs: rows of the whole matrix.
        num_inputs: columns of the whole matrix.
    """
    if layer.endswith(NEVER):
        return None
    is_whole = num_inputs % GROUP_SIZE == 0 and num_outputs % 2 == 0  # files hold two rows in a byte
    if scheme == "w4a8" and is_whole and not layer.endswith(TABLES):
        return Precision.INT4
    return Precision.INT8
