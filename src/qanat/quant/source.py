"""What a scheme may know of a checkpoint before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qanat.config.model_config import ModelConfig
from qanat.quant.parameter import TensorHeader


@dataclass(frozen=True)
class SchemeSource:
    """What a scheme may know of a checkpoint before anything is loaded.

    Attributes:
        folder: of the checkpoint.
        config: its shape, with the `quantization_config` of its config.json.
        headers: type and shape of every tensor, by its name in the model (experts not stacked); empty where there are
            no weights, as for a plan.
        own_name: the model's name for a name that the checkpoint uses; None for names that are no part of it.
    """

    folder: Path
    config: ModelConfig
    headers: Mapping[str, TensorHeader] = field(default_factory=dict)
    own_name: Callable[[str], str | None] = lambda name: name
