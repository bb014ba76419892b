"""From a checkpoint's folder to the scheme that its layers are quantised by."""

from __future__ import annotations

from pathlib import Path

from qanat.config.model_config import ModelConfig
from qanat.models.checkpoint import Checkpoint, open_checkpoint
from qanat.models.decoder import weight_map_of
from qanat.models.registry import family_of
from qanat.models.weights import DropRule
from qanat.quant.parameter import TensorHeader
from qanat.quant.scheme import Scheme
from qanat.quant.schemes import make_scheme
from qanat.quant.source import SchemeSource


def open_scheme(
    quantization: str, folder: Path, config: ModelConfig, checkpoint: Checkpoint | None
) -> Scheme | None:
    """The scheme of a model.

    Args:
        quantization: as `ResolvedConfig.quantization` has it; "" gives None.
        folder: of the checkpoint.
        config: its shape.
        checkpoint: the opened files; None where there are no weights, as for a plan or random weights.

    Raises:
        CheckpointError: there is no such scheme, or the checkpoint's description of itself is broken or not known.
    """
    if not quantization:
        return None
    weight_map = weight_map_of(family_of(config), config)

    def own_name(name: str) -> str | None:
        return None if isinstance(weight_map.resolve(name), DropRule) else weight_map.own_name(name)

    headers: dict[str, TensorHeader] = {}
    for name in checkpoint.owner if checkpoint is not None else ():
        own = own_name(name)
        if own is not None and checkpoint is not None:
            headers[own] = checkpoint.header(name)
    return make_scheme(quantization, SchemeSource(folder, config, headers, own_name))


def scheme_without_weights(quantization: str, folder: Path, config: ModelConfig) -> Scheme | None:
    """The same before the weights are loaded: their headers are read where the folder has weights.

    Raises:
        CheckpointError: see `open_scheme`.
    """
    has_weights = bool(quantization) and any(folder.glob("*.safetensors"))
    return open_scheme(quantization, folder, config, open_checkpoint(folder) if has_weights else None)
