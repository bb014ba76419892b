"""How large a model's weights are, without loading them."""

from __future__ import annotations

from qanat.config.resolved import ResolvedConfig
from qanat.models.registry import build_model
from qanat.worker.cache_tensors import DTYPES


def weight_bytes(config: ResolvedConfig) -> int:
    """Sum over the parameters, each in its own type (some stay fp32), tied ones counted once.

    Raises:
        CheckpointError: the model's family has no code.
    """
    model = build_model(config.model, DTYPES[config.dtype], "meta")
    return sum(parameter.nbytes for parameter in model.parameters())
