"""The scheme of official FP8 checkpoints: `quant_method` fp8 in config.json."""

from __future__ import annotations

from qanat.core.errors import CheckpointError
from qanat.quant.formats.common import CheckpointScheme, pair_of_sizes, single_shape
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
    given = section.get("weight_block_size")
    block = pair_of_sizes(given, f"{where}: weight_block_size") if given is not None else None
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
            headers = source.headers
            unused = {"input_scale": single_shape(headers, f"{matrix}.input_scale")} if is_static else {}
            return Fp8Blocks(
                "FP8",
                block_shape=(0, 0),
                scale_name="weight_scale",
                scale_shape=single_shape(headers, f"{matrix}.weight_scale"),
                unused=unused,
            )
        return Fp8Blocks("FP8 blocks", block_shape=block)

    return CheckpointScheme("fp8", format_of, source.headers)
