"""Every scheme by the name that `--quantization` gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from qanat.config.quantization import AT_LOAD
from qanat.core.errors import CheckpointError
from qanat.quant.at_load import OwnScheme
from qanat.quant.formats.ascend import ascend_scheme
from qanat.quant.formats.compressed_tensors import compressed_tensors_scheme
from qanat.quant.formats.fp8_block import fp8_scheme
from qanat.quant.formats.gptq import gptq_scheme
from qanat.quant.scheme import Scheme
from qanat.quant.source import SchemeSource

SchemeMaker: TypeAlias = Callable[[SchemeSource], Scheme]

SCHEMES: dict[str, SchemeMaker] = {
    "ascend": ascend_scheme,
    "compressed-tensors": compressed_tensors_scheme,
    "fp8": fp8_scheme,
    "gptq": gptq_scheme,
    **{name: lambda source, name=name: OwnScheme(name) for name in AT_LOAD},
}
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
