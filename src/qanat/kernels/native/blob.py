"""Reads packed memory back into tensors: slow, for providers that know no layout but the plain one, and for tests."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from qanat.kernels.quantised import NUM_SEGMENTS, Int4Matrix, Int8Matrix, QuantisedMatrix, StaticScale

PANEL_OUTPUTS = 16
MAX_INTERLEAVED = 4


def unpacked(header: Mapping[str, Any], address: int, shape: torch.Size) -> Tensor | QuantisedMatrix:
    """What was packed, as a copy.

    Args:
        header: see `qanat.kernels.native.packed`.
        address: of the memory.
        shape: ([E,] out, in).
    """
    if header["kind"] == "int8":
        return _int8(header, address, shape)
    if header["kind"] == "int4":
        return _int4(header, address, shape)
    dtype = torch.float32 if header["kind"] == "fp32" else torch.bfloat16
    length = header["segment_length"]
    num_segments = _num_plain_segments(-(-header["num_inputs"] // length))
    interleaved = min(MAX_INTERLEAVED, num_segments)
    size = PANEL_OUTPUTS * num_segments * length * dtype.itemsize
    panels = _panels(header, address, size).view(dtype)
    groups = panels.view(*panels.shape[:2], -1, length, interleaved, PANEL_OUTPUTS)
    rows = groups.permute(0, 1, 5, 2, 4, 3).reshape(panels.shape[0], -1, num_segments * length)
    return _cut(rows, shape)


def _num_plain_segments(num_used: int) -> int:
    """1, 2, 4 or 8: a plain matrix has so many, some of them perhaps without inputs."""
    return next(number for number in (1, 2, MAX_INTERLEAVED, NUM_SEGMENTS) if number >= num_used)


def _int8(header: Mapping[str, Any], address: int, shape: torch.Size) -> Int8Matrix:
    length = header["segment_length"]
    row_length = -(-header["num_inputs"] // length) * length
    num_values, row_bytes = PANEL_OUTPUTS * row_length, PANEL_OUTPUTS * 4
    panels = _panels(header, address, num_values + row_bytes * (2 if header["has_bias"] else 1))
    groups = panels[..., :num_values].view(torch.int8).reshape(*panels.shape[:2], -1, PANEL_OUTPUTS, 4)
    values = groups.permute(0, 1, 3, 2, 4).reshape(panels.shape[0], -1, row_length)
    floats = panels[..., num_values:].contiguous().view(torch.float32)
    scales = floats[..., :PANEL_OUTPUTS].reshape(panels.shape[0], -1, 1)
    bias = floats[..., PANEL_OUTPUTS:].reshape(panels.shape[0], -1, 1) if header["has_bias"] else None
    single = torch.Size([*shape[:-1], 1])
    return Int8Matrix(
        _cut(values, shape),
        _cut(scales, single).squeeze(-1),
        StaticScale(header["static_scale"], header["static_offset"]) if header["is_static"] else None,
        None if bias is None else _cut(bias, single).squeeze(-1),
        length,
    )


def _int4(header: Mapping[str, Any], address: int, shape: torch.Size) -> Int4Matrix:
    length, group_size = header["segment_length"], header["group_size"]
    cell = math.gcd(length, group_size)
    scale_type = torch.bfloat16 if header["is_scale_bf16"] else torch.float32
    num_segments = -(-header["num_inputs"] // length)
    weight_bytes = PANEL_OUTPUTS * length // 2
    scale_bytes = length // cell * PANEL_OUTPUTS * scale_type.itemsize
    segment_bytes = weight_bytes + -(-scale_bytes // 64) * 64
    panels = _panels(header, address, num_segments * segment_bytes)
    segments = panels.view(*panels.shape[:2], num_segments, segment_bytes)
    packed = segments[..., :weight_bytes].reshape(*segments.shape[:3], -1, PANEL_OUTPUTS, 1, 4)
    pairs = torch.cat((packed & 15, packed >> 4), -2).to(torch.int8) - 8
    values = pairs.permute(0, 1, 4, 2, 3, 5, 6).reshape(panels.shape[0], -1, num_segments * length)
    scales = segments[..., weight_bytes : weight_bytes + scale_bytes].contiguous().view(scale_type)
    cells = scales.view(*scales.shape[:3], -1, PANEL_OUTPUTS).permute(0, 1, 4, 2, 3)
    of_inputs = cells.reshape(panels.shape[0], values.shape[1], -1)[..., :: group_size // cell].float()
    groups = torch.Size([*shape[:-1], shape[-1] // group_size])
    return Int4Matrix(_cut(values, shape), _cut(of_inputs, groups), group_size, length)


def _panels(header: Mapping[str, Any], address: int, panel_bytes: int) -> Tensor:
    """The memory as bytes [E, panels, panel_bytes]."""
    num_panels = -(-header["num_outputs"] // PANEL_OUTPUTS)
    size = header["num_matrices"] * num_panels * panel_bytes
    memory = torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)
    return memory.view(header["num_matrices"], num_panels, panel_bytes)


def _cut(rows: Tensor, shape: torch.Size) -> Tensor:
    """Padding taken away: rows [E, outputs, inputs] -> a copy of the shape."""
    return rows[:, : shape[-2], : shape[-1]].reshape(shape).clone()
