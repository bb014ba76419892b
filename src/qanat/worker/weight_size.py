"""How large a rank's share of a model's weights is, without loading them."""

from __future__ import annotations

from qanat.config.resolved import ResolvedConfig
from qanat.models.registry import build_model
from qanat.platforms.groups import PlannedGroup
from qanat.worker.cache_tensors import DTYPES


def weight_bytes(config: ResolvedConfig) -> int:
    """Sum over the parameters of one rank, each in its own type (some stay fp32), tied ones counted once.

    All ranks have equal shares.

    Raises:
        CheckpointError: the model's family has no code.
    """
    group = PlannedGroup(0, config.tensor_parallel_size)
    model = build_model(config.model, DTYPES[config.dtype], "meta", group)
    return sum(parameter.nbytes for parameter in model.parameters())
