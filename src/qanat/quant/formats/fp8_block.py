"""The scheme of official FP8 checkpoints: `quant_method` fp8 in config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qanat.core.errors import CheckpointError
from qanat.quant.formats.common import CheckpointScheme
from qanat.quant.formats.fp8 import Fp8Blocks
from qanat.quant.source import SchemeSource
from qanat.quant.stored import MatrixFormat

FP8 = "F8_E4M3"
NEVER = ("lm_head", "embed_tokens", "mlp.gate", "shared_expert_gate", "in_proj_a", "in_proj_b")
"""Matrices that these checkpoints leave in bf16, for plans without the files."""


def fp8_scheme(source: SchemeSource) -> CheckpointScheme:
    """The scheme of a folder whose config.json says fp8. Where the files are there, their types decide.

    Raises:
        CheckpointError: config.json asks for something that is not known.
    """
    section = source.config.quantization_config or {}
    where = source.folder / "config.json"
    if section.get("fmt", "e4m3") != "e4m3":
        raise CheckpointError(
            f"{where}: quantization_config has fmt {section['fmt']!r}; this version reads e4m3"
        )
    block = _block_shape(section, str(where))
    is_static = section.get("activation_scheme") == "static"
    left_out = [
        source.own_name(str(name)) or str(name) for name in section.get("modules_to_not_convert") or ()
    ]

    def is_quantised(matrix: str) -> bool:
        if source.headers:
            header = source.headers.get(f"{matrix}.weight")
            return header is not None and header.dtype == FP8
        return not matrix.endswith(NEVER) and not any(
            matrix == n or matrix.startswith(f"{n}.") for n in left_out
        )

    def format_of(matrix: str) -> MatrixFormat | None:
        if not is_quantised(matrix):
            return None
        if block is None:
            unused = ("input_scale",) if is_static else ()
            return Fp8Blocks(
                "FP8",
                block_shape=(0, 0),
                scale_name="weight_scale",
                scale_shape=_shape(source, matrix),
                unused=unused,
            )
        return Fp8Blocks("FP8 blocks", block_shape=block)

    return CheckpointScheme("fp8", format_of, source.headers)


def _shape(source: SchemeSource, matrix: str) -> tuple[int, ...]:
    """Of the one scale of a matrix, which is written with an axis or without."""
    header = source.headers.get(f"{matrix}.weight_scale")
    return () if header is not None and header.shape == () else (1,)


def _block_shape(section: Mapping[str, Any], where: str) -> tuple[int, int] | None:
    block = section.get("weight_block_size")
    if block is None:
        return None
    if (
        not isinstance(block, list)
        or len(block) != 2
        or not all(isinstance(size, int) and size > 0 for size in block)
    ):
        raise CheckpointError(f"{where}: weight_block_size {block!r} is no pair of sizes")
    return block[0], block[1]
