"""How large a rank's share of a model's weights is, without loading them."""

from __future__ import annotations

from qanat.config.env import wanted_instruction_set
from qanat.config.resolved import ResolvedConfig
from qanat.kernels.providers import stored_bytes
from qanat.models.registry import build_model
from qanat.platforms.groups import PlannedGroup
from qanat.worker.cache_tensors import DTYPES


def weight_bytes(config: ResolvedConfig) -> int:
    """Sum over the parameters of one rank, each in its own type (some stay fp32), tied ones counted once.

    Matrices count as the kernels will store them. All ranks have equal shares.

    Raises:
        CheckpointError: the model's family has no code.
    """
    group = PlannedGroup(0, config.tensor_parallel_size)
    model = build_model(config.model, DTYPES[config.dtype], "meta", group)
    matrices = {id(parameter) for parameter in model.matrices()}
    wanted = wanted_instruction_set()
    return sum(
        stored_bytes(parameter, wanted) if id(parameter) in matrices else parameter.nbytes
        for parameter in model.parameters()
    )
