"""The scheme of compressed-tensors checkpoints: groups of layers in config.json, each with its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qanat.core.errors import CheckpointError
from qanat.quant.formats.common import (
    WEIGHT_ONLY,
    CheckpointScheme,
    pair_of_sizes,
    single_shape,
    whole_number,
)
from qanat.quant.formats.compressed_matrix import CompressedInt8, CompressedPacked
from qanat.quant.formats.fp8 import Fp8Blocks
from qanat.quant.formats.gptq_matrix import NOTE as PACKED_NOTE
from qanat.quant.formats.gptq_matrix import ROUNDED_NOTE
from qanat.quant.formats.mx import MxFloats
from qanat.quant.source import SchemeSource
from qanat.quant.stored import MatrixFormat

FORMATS = ("int-quantized", "pack-quantized", "float-quantized", "mxfp4-pack-quantized", "mxfp8-quantized")
NEVER = ("embed_tokens",)
LINEAR = "Linear"
"""Class that config.json's targets name; every matrix but the embedding is of it."""


def compressed_tensors_scheme(source: SchemeSource) -> CheckpointScheme:
    """The scheme of a folder whose config.json says compressed-tensors.

    Raises:
        CheckpointError: config.json asks for something that is not known.
    """
    return CheckpointScheme("compressed-tensors", _Formats(source).of, source.headers)


def _names(matrix: str) -> tuple[str, str]:
    """What checkpoints call a matrix: those with a vision part have one word more."""
    return matrix, re.sub(r"^model\.", "model.language_model.", matrix)


class _Formats:
    """Chooses the format of each matrix: by the files' names where they are there, else by `targets` and `ignore`."""

    def __init__(self, source: SchemeSource) -> None:
        self._source = source
        self._section = source.config.quantization_config or {}
        self._where = f"{source.folder / 'config.json'}: quantization_config"
        groups = self._section.get("config_groups")
        if not isinstance(groups, Mapping) or not all(
            isinstance(group, Mapping) for group in groups.values()
        ):
            raise CheckpointError(f"{self._where} has no config_groups")
        self._groups: dict[str, Mapping[str, Any]] = dict(groups)
        self._ignore = [str(entry) for entry in self._section.get("ignore") or ()]
        for name, group in self._groups.items():
            self._format_name(name, group)

    def of(self, matrix: str) -> MatrixFormat | None:
        """See `FormatOf`."""
        if self._source.headers:
            names = (f"{matrix}.weight_packed", f"{matrix}.weight_scale")
            if not any(name in self._source.headers for name in names):
                return None
        elif matrix.endswith(NEVER) or any(self._fits(entry, matrix) for entry in self._ignore):
            return None
        for name, group in self._groups.items():
            if any(self._fits(str(target), matrix) for target in group.get("targets") or ()):
                return self._make(name, group, matrix)
        if self._source.headers:
            raise CheckpointError(f"{self._where}: no group of config_groups has {matrix!r} as its target")
        return None

    def _fits(self, pattern: str, matrix: str) -> bool:
        """Whether a target or an exception means a matrix, whatever prefix the checkpoint's names have."""
        if pattern.startswith("re:"):
            try:
                return any(re.match(pattern.removeprefix("re:"), name) for name in _names(matrix))
            except re.error as error:
                raise CheckpointError(
                    f"{self._where}: {pattern!r} is no regular expression ({error})"
                ) from error
        return pattern == LINEAR or matrix == (self._source.own_name(f"{pattern}.") or "").rstrip(".")

    def _format_name(self, name: str, group: Mapping[str, Any]) -> str:
        """Of a group.

        Raises:
            CheckpointError: it is not read.
        """
        found = str(group.get("format") or self._section.get("format"))
        if found not in FORMATS:
            raise CheckpointError(
                f"{self._where}: group {name!r} has the format {found!r}; this version reads {', '.join(FORMATS)}"
            )
        return found

    def _make(self, name: str, group: Mapping[str, Any], matrix: str) -> MatrixFormat:
        weights = group.get("weights")
        if not isinstance(weights, Mapping):
            raise CheckpointError(f"{self._where}: group {name!r} has no weights")
        form, activations = self._format_name(name, group), group.get("input_activations")
        is_static = isinstance(activations, Mapping) and not activations.get("dynamic", False)
        bits, strategy = weights.get("num_bits"), weights.get("strategy")
        if form == "int-quantized" and bits == 8 and strategy in ("channel", "tensor"):
            return self._int8(matrix, strategy, is_static, has_activations=activations is not None)
        if form == "pack-quantized" and bits in (4, 8) and strategy in ("group", "channel"):
            return self._packed(weights, matrix, has_activations=activations is not None)
        if form == "float-quantized" and bits == 8:
            made = self._fp8(weights, matrix, is_static)
            if made is not None:
                return made
        if form == "mxfp4-pack-quantized":
            return MxFloats("MXFP4", is_four_bit=True, weight_name="weight_packed")
        if form == "mxfp8-quantized":
            return MxFloats("MXFP8")
        raise CheckpointError(
            f"{self._where}: group {name!r} has {form} with num_bits {bits!r} and strategy {strategy!r}, which this "
            "version does not read"
        )

    def _int8(self, matrix: str, strategy: str, is_static: bool, *, has_activations: bool) -> CompressedInt8:
        headers = self._source.headers
        scale_shape = single_shape(headers, f"{matrix}.weight_scale") if strategy == "tensor" else None
        if not has_activations:
            return CompressedInt8("W8A16", WEIGHT_ONLY, scale_shape)
        names = ["input_scale"] if is_static else []
        if is_static and f"{matrix}.input_zero_point" in headers:
            names.append("input_zero_point")
        shapes = {name: single_shape(headers, f"{matrix}.{name}") for name in names}
        return CompressedInt8("W8A8 static" if is_static else "W8A8", "", scale_shape, shapes)

    def _packed(self, weights: Mapping[str, Any], matrix: str, *, has_activations: bool) -> CompressedPacked:
        headers, bits, is_symmetric = (
            self._source.headers,
            int(weights["num_bits"]),
            bool(weights.get("symmetric", True)),
        )
        has_index = f"{matrix}.weight_g_idx" in headers
        group_size = 0
        if weights["strategy"] == "group" and weights.get("group_size") is not None:
            group_size = whole_number(weights, "group_size", 0, self._where)
        note = PACKED_NOTE if is_symmetric and not has_index and bits == 4 else ROUNDED_NOTE
        if has_activations:
            note = ""
        return CompressedPacked(
            f"W{bits}A16", note, bits, group_size, is_symmetric, has_index, f"{self._where}: {matrix}"
        )

    def _fp8(self, weights: Mapping[str, Any], matrix: str, is_static: bool) -> Fp8Blocks | None:
        headers = self._source.headers
        unused = {"input_scale": single_shape(headers, f"{matrix}.input_scale")} if is_static else {}
        strategy = weights.get("strategy")
        if strategy == "channel":
            return Fp8Blocks("FP8", block_shape=(1, 0), scale_name="weight_scale", unused=unused)
        if strategy == "tensor":
            shape = single_shape(headers, f"{matrix}.weight_scale")
            return Fp8Blocks(
                "FP8", block_shape=(0, 0), scale_name="weight_scale", scale_shape=shape, unused=unused
            )
        if strategy == "block":
            block = pair_of_sizes(weights.get("block_structure"), f"{self._where}: block_structure")
            return Fp8Blocks("FP8 blocks", block_shape=block, scale_name="weight_scale")
        return None
