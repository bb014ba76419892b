"""Ascend checkpoints (msmodelslim): a description file names the kind of every tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qanat.config.json_section import read_json
from qanat.config.quantization import ASCEND_DESCRIPTIONS
from qanat.core.errors import CheckpointError
from qanat.quant.formats.ascend_int4 import PARTS_OF_SCALE_BIAS, AscendInt4
from qanat.quant.formats.ascend_int8 import AscendInt8, AscendStatic
from qanat.quant.formats.common import WEIGHT_ONLY, CheckpointScheme, own_group
from qanat.quant.formats.fp8 import Fp8Blocks
from qanat.quant.formats.mx import MxFloats
from qanat.quant.parameter import TensorHeader
from qanat.quant.source import SchemeSource
from qanat.quant.stored import MatrixFormat

FLOAT = "FLOAT"
PACKED_VERSION = "1.0.0"
"""With description files of this version a byte holds two rows of 4-bit values; where shapes are known, they decide."""

FEWER_BITS = "weights are int4 as in the checkpoint; activations, which it would have in 4 bits, keep 8"
MIXED = "activations are quantised from each row in every role; the checkpoint's fixed scales are not used"

KINDS = (
    "W8A8", "W8A8_DYNAMIC", "W8A8_MIX", "W8A16", "W4A8_DYNAMIC", "W4A4_DYNAMIC", "WFP8AFP8_DYNAMIC", "W8A8_MXFP8",
    "W4A8_MXFP", "W4A4_MXFP4",
)  # fmt: skip
"""Kinds that are read, beside FLOAT."""

_SUFFIXES = re.compile(
    r"\.(weight|bias|weight_scale|weight_offset|input_scale|input_offset|deq_scale|quant_bias|scale_bias|"
    r"weight_scale_second|weight_offset_second)$"
)


def ascend_scheme(source: SchemeSource) -> CheckpointScheme:
    """The scheme of a folder with a description file.

    Raises:
        CheckpointError: the file is broken, names an unknown kind, or does not go with the tensors.
    """
    description = read_description(source.folder)
    kinds = _own_kinds(description, source)
    _check_against(kinds, source, description.path)
    formats = _Formats(kinds, source.headers, description)
    return CheckpointScheme("ascend", formats.of, source.headers)


@dataclass(frozen=True)
class Description:
    """What a description file says.

    Attributes:
        path: of the file.
        kinds: name of a tensor in the checkpoint -> its kind.
        version: of the file.
        group_size: inputs that share a scale in the 4-bit kinds; 0 for none.
    """

    path: Path
    kinds: Mapping[str, str]
    version: str
    group_size: int


def read_description(folder: Path) -> Description:
    """Reads the one description file of a folder.

    Raises:
        CheckpointError: there are several, or it is no JSON object of the expected form.
    """
    paths = sorted(folder.glob(ASCEND_DESCRIPTIONS))
    if len(paths) != 1:
        raise CheckpointError(f"{folder} has {len(paths)} files {ASCEND_DESCRIPTIONS}; there must be one")
    raw = read_json(paths[0])
    kinds = {name: kind for name, kind in raw.items() if "." in name}
    wrong = next((name for name, kind in kinds.items() if not isinstance(kind, str)), None)
    if wrong is not None:
        raise CheckpointError(f"{paths[0]}: the kind of tensor {wrong!r} is no text")
    group_size = raw.get("group_size", 0)
    if not isinstance(group_size, int):
        raise CheckpointError(f"{paths[0]}: group_size {group_size!r} is no whole number")
    return Description(paths[0], kinds, str(raw.get("version", "")), max(group_size, 0))


def _own_kinds(description: Description, source: SchemeSource) -> dict[str, str]:
    """The kinds by the model's own names; tensors that are dropped by a rule are left out."""
    kinds = {}
    for name, kind in description.kinds.items():
        own = source.own_name(name)
        if own is None:
            continue
        if kind != FLOAT and kind not in KINDS:
            raise CheckpointError(
                f"{description.path}: tensor {name!r} has the unknown kind {kind!r}; this version reads {FLOAT}, "
                f"{', '.join(KINDS)}"
            )
        kinds[own] = kind
    return kinds


def _check_against(kinds: Mapping[str, str], source: SchemeSource, path: Path) -> None:
    """Every described tensor is there, every tensor is described, and all tensors of a matrix are of one kind."""
    headers = source.headers
    if headers:
        missing = next((name for name in kinds if name not in headers), None)
        if missing is not None:
            raise CheckpointError(
                f"{path} describes tensor {missing!r}, which no file of {path.parent} holds"
            )
        unknown = next((name for name in headers if name not in kinds), None)
        if unknown is not None:
            raise CheckpointError(f"{path} does not describe tensor {unknown!r}, which {path.parent} holds")
    for name, kind in kinds.items():
        weight = _SUFFIXES.sub(".weight", name)
        if kinds.get(weight, kind) != kind:
            raise CheckpointError(
                f"{path}: tensor {name!r} has kind {kind}, but {weight!r} has {kinds[weight]}"
            )


class _Formats:
    """Chooses the format of each matrix."""

    def __init__(
        self, kinds: Mapping[str, str], headers: Mapping[str, TensorHeader], description: Description
    ) -> None:
        self._kinds = kinds
        self._headers = headers
        self._description = description

    def of(self, matrix: str) -> MatrixFormat | None:
        """See `FormatOf`."""
        kind = self._kinds.get(f"{matrix}.weight", FLOAT)
        if kind == FLOAT:
            return None
        has_bias = f"{matrix}.bias" in self._kinds
        if kind == "W8A8":
            others = [
                name
                for name in ("weight_scale", "weight_offset", "bias")
                if f"{matrix}.{name}" in self._kinds
            ]
            return AscendStatic(others=tuple(others))
        if kind in ("W8A8_DYNAMIC", "W8A8_MIX", "W8A16"):
            note = {"W8A16": WEIGHT_ONLY, "W8A8_MIX": MIXED}.get(kind, "")
            return AscendInt8(kind, note, has_static=kind == "W8A8_MIX", has_bias=has_bias)
        if kind in ("W4A8_DYNAMIC", "W4A4_DYNAMIC"):
            return self._int4(matrix, kind)
        if kind == "WFP8AFP8_DYNAMIC":
            return Fp8Blocks(kind, block_shape=(1, 0), scale_name="weight_scale", offset_name="weight_offset")
        return MxFloats(kind, is_four_bit=kind != "W8A8_MXFP8")

    def _int4(self, matrix: str, kind: str) -> AscendInt4:
        weight, scale = self._header(matrix, "weight"), self._header(matrix, "weight_scale")
        second, bias = self._header(matrix, "weight_scale_second"), self._header(matrix, "scale_bias")
        is_packed = kind == "W4A8_DYNAMIC" and self._description.version == PACKED_VERSION
        if weight is not None and scale is not None and len(weight.shape) == 2 and scale.shape:
            is_packed = weight.shape[0] != scale.shape[0]
        has_groups = f"{matrix}.weight_scale_second" in self._kinds
        group_size = self._description.group_size
        if second is not None and weight is not None and len(second.shape) == 2 and second.shape[1] > 0:
            group_size = own_group(group_size, weight.shape[1], f"{self._description.path}: {matrix}.weight")
        parts = 0
        if f"{matrix}.scale_bias" in self._kinds:
            parts = (
                PARTS_OF_SCALE_BIAS if bias is not None and bias.shape[-1:] == (PARTS_OF_SCALE_BIAS,) else 1
            )
        note = FEWER_BITS if kind == "W4A4_DYNAMIC" else ""
        has_offsets = f"{matrix}.weight_offset_second" in self._kinds
        return AscendInt4(kind, note, is_packed, group_size if has_groups else 0, parts, has_offsets)

    def _header(self, matrix: str, name: str) -> TensorHeader | None:
        return self._headers.get(f"{matrix}.{name}")
