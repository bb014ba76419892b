"""Every scheme by the name that `--quantization` gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from qanat.config.model_config import ModelConfig
from qanat.config.quantization import AT_LOAD
from qanat.core.errors import CheckpointError
from qanat.quant.at_load import OwnScheme
from qanat.quant.parameter import TensorHeader
from qanat.quant.scheme import Scheme


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


SchemeMaker: TypeAlias = Callable[[SchemeSource], Scheme]

SCHEMES: dict[str, SchemeMaker] = {name: lambda source, name=name: OwnScheme(name) for name in AT_LOAD}
"""Name of a quantisation -> what makes its scheme."""


def make_scheme(name: str, source: SchemeSource) -> Scheme:
    """The scheme of this name.

    Raises:
        CheckpointError: there is none, or the checkpoint's description of itself is broken or not known.
    """
    if name not in SCHEMES:
        known = ", ".join(SCHEMES) or "none"
        raise CheckpointError(
            f"{source.folder} is quantised ({name}), which this version does not read; it reads: {known}"
        )
    return SCHEMES[name](source)
