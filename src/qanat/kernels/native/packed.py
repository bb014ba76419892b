"""Weights in the layout that the native products read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from qanat.kernels.native.blob import unpacked
from qanat.kernels.native.module import native
from qanat.kernels.native.tensors import FLOAT_TYPES, address_of, is_bf16, new
from qanat.kernels.quantised import NUM_SEGMENTS, Int8Matrix, QuantisedMatrix
from qanat.kernels.rows import RowFormat

LAYOUT_VERSION = 2
"""Grows when the contents of packed memory change: whoever keeps some on disk keeps this beside it."""

Header = dict[str, Any]
"""What `PackedMatrix` is made from: kind, num_matrices, num_outputs, num_inputs, segment_length, group_size,
is_scale_bf16, has_bias, is_static, static_scale, static_offset; plain numbers, bools and one string."""

INT4_STEP = 8
"""Inputs of an output that stand beside each other in a packed int4 matrix: its cells are multiples of it."""

PLAIN_KINDS = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [out, in], or those of all experts [E, out, in], in one piece of memory.

    Attributes:
        matrix: the module's object.
        shape: ([E,] out, in).
        keep_alive: what holds the memory where the module does not own it.
    """

    matrix: Any
    shape: torch.Size
    _header: Mapping[str, Any]
    keep_alive: object = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """One of fp32, bf16, int8, int4."""
        return str(self._header["kind"])

    @cached_property
    def row_format(self) -> RowFormat | None:
        """How products with it read their rows; None for plain matrices, which take them as they are."""
        if self.kind in PLAIN_KINDS.values():
            return None
        own, is_int4 = self._header, self.kind == "int4"
        length = own["segment_length"]
        cell = math.gcd(length, own["group_size"]) if is_int4 else 0
        return RowFormat(
            is_int4,
            own["num_inputs"],
            length,
            cell,
            own["is_static"],
            own["static_scale"],
            own["static_offset"],
        )

    def header(self) -> Header:
        """What `mapped` needs beside the memory; can be written as JSON."""
        return dict(self._header, is_stack=len(self.shape) == 3)

    @property
    def address(self) -> int:
        """Of the memory; its contents are the same on every instruction set."""
        return int(self.matrix.address)

    @property
    def size_bytes(self) -> int:
        """Of the memory, rows of zeros up to a whole panel included."""
        return int(self.matrix.size_bytes)

    @property
    def nbytes(self) -> int:
        """The same."""
        return self.size_bytes

    @classmethod
    def mapped(cls, header: Mapping[str, Any], address: int, keep_alive: object) -> PackedWeight:
        """The weight whose memory lies at an address, aligned to 64 bytes, for as long as `keep_alive` does."""
        own = {name: value for name, value in header.items() if name != "is_stack"}
        stack = [own["num_matrices"]] if header["is_stack"] else []
        shape = torch.Size([*stack, own["num_outputs"], own["num_inputs"]])
        return cls(native().PackedMatrix(**own, address=address), shape, own, keep_alive)

    def move_to(self, address: int) -> None:
        """Uses a copy of the memory from the next op on; `keep_alive` must hold both."""
        self.matrix.move_to(address)

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Some rows [n, in] of the matrix; ids [n] contiguous int64, checked by the caller.

        Args:
            ids: which rows.
            dtype: bf16 or fp32; for plain matrices their own.
        """
        out = new((ids.shape[0], self.shape[1]), dtype)
        native().embedding(ids.data_ptr(), ids.shape[0], self.matrix, out.data_ptr(), is_bf16(out))
        return out

    def unpacked(self) -> Tensor | QuantisedMatrix:
        """What it was made from, as a copy."""
        return unpacked(self._header, self.address, self.shape)


def plain_type(weight: PackedWeight) -> torch.dtype | None:
    """The type of the values of a plain matrix, None for quantised ones."""
    return {kind: dtype for dtype, kind in PLAIN_KINDS.items()}.get(weight.kind)


def header_of(weight: Tensor | QuantisedMatrix, segment_length: int = 0) -> Header:
    """The header of a weight once it is packed, by its shape and type only; see `pack`.

    int4 scales in fp32 that bf16 has too are kept in bf16; of a tensor without values it is not known, and fp32 counts.
    """
    *stack, num_outputs, num_inputs = weight.shape
    header = {
        "kind": "int4",
        "num_matrices": stack[0] if stack else 1,
        "num_outputs": num_outputs,
        "num_inputs": num_inputs,
        "segment_length": segment_length or -(-num_inputs // NUM_SEGMENTS),
        "group_size": 0,
        "is_scale_bf16": False,
        "has_bias": False,
        "is_static": False,
        "static_scale": 1.0,
        "static_offset": 0.0,
    }
    if isinstance(weight, Tensor):
        return {**header, "kind": PLAIN_KINDS[weight.dtype]}
    header["segment_length"] = weight.inputs_per_segment
    if not isinstance(weight, Int8Matrix):
        return {**header, "group_size": weight.group_size, "is_scale_bf16": _is_exact_in_bf16(weight.scales)}
    header |= {"kind": "int8", "has_bias": weight.bias is not None}
    if weight.static is not None:
        header |= {
            "is_static": True,
            "static_scale": weight.static.scale,
            "static_offset": weight.static.offset,
        }
    return header


def _is_exact_in_bf16(scales: Tensor) -> bool:
    if scales.dtype == torch.bfloat16 or scales.is_meta:
        return scales.dtype == torch.bfloat16
    return torch.equal(scales.bfloat16().float(), scales.float())


def is_packable(weight: Tensor | QuantisedMatrix) -> bool:
    """True for the types that the module has products for."""
    if isinstance(weight, Tensor):
        return weight.dtype in FLOAT_TYPES
    return isinstance(weight, Int8Matrix) or weight.inputs_per_cell % INT4_STEP == 0


def packed_bytes(weight: Tensor | QuantisedMatrix) -> int:
    """What a matrix [out, in] or a stack [E, out, in] would take packed, by its shape and type only."""
    return int(native().packed_bytes(**header_of(weight)))


def pack(weight: Tensor | QuantisedMatrix, segment_length: int = 0) -> PackedWeight:
    """A packed copy of a matrix [out, in] or of a stack [E, out, in] on the CPU: bf16, fp32, or quantised.

    Args:
        weight: its values.
        segment_length: of the whole matrix, if this is a tensor with a shard of its inputs; 0: its own.
    """
    header = header_of(weight, segment_length)
    matrix = native().PackedMatrix(**header)
    if isinstance(weight, Tensor):
        assert weight.dtype in FLOAT_TYPES and weight.device.type == "cpu", (
            "checked by whoever chooses to pack"
        )
        values = weight.detach()
        if values.stride(-1) != 1:
            values = values.contiguous()
        matrix.fill_plain(values.data_ptr(), values.stride(-2), values.stride(0))
    else:
        values, scales = weight.values.contiguous(), weight.scales.float().contiguous()
        assert values.dtype == torch.int8 and values.device.type == "cpu", "as the types of matrices promise"
        bias = weight.bias if isinstance(weight, Int8Matrix) else None
        bias = None if bias is None else bias.float().contiguous()
        matrix.fill_quantised(values.data_ptr(), scales.data_ptr(), address_of(bias))
    return PackedWeight(matrix, weight.shape, header)
