"""Matrices written in every quantised format that Qanat reads, each with what it means in fp32.

Written from the formats' descriptions, without code of the package: what one misunderstands the other must not share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Written:
    """A matrix in some format.

    Attributes:
        tensors: by what stands after the matrix's name and a point.
        meaning: the matrix [out, in] in fp32.
    """

    tensors: dict[str, Tensor]
    meaning: Tensor


Writer = Callable[[Tensor], Written]

STATIC_SCALE, STATIC_OFFSET = 0.06, 5.0


def rows_int8(weight: Tensor, largest: int = 127) -> tuple[Tensor, Tensor]:
    scale = weight.abs().amax(1, keepdim=True) / largest
    return (weight / scale).round().to(torch.int8), scale


def ascend_dynamic(weight: Tensor) -> Written:
    values, scale = rows_int8(weight)
    tensors = {"weight": values, "weight_scale": scale, "weight_offset": torch.zeros_like(scale)}
    return Written(tensors, values.float() * scale)


def ascend_asymmetric(weight: Tensor) -> Written:
    """W8A16 with offsets."""
    low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    scale = (high - low) / 255
    offset = (-128 - low / scale).round()
    values = (weight / scale + offset).round().clamp(-128, 127).to(torch.int8)
    tensors = {"weight": values, "weight_scale": scale, "weight_offset": offset}
    return Written(tensors, (values.float() - offset) * scale)


def ascend_static(weight: Tensor) -> Written:
    values, scale = rows_int8(weight)
    correction = -(STATIC_OFFSET * values.sum(1, dtype=torch.int32)).round().to(torch.int32)
    tensors = {
        "weight": values,
        "input_scale": torch.tensor([STATIC_SCALE]),
        "input_offset": torch.tensor([STATIC_OFFSET]),
        "deq_scale": STATIC_SCALE * scale.squeeze(1),
        "quant_bias": correction,
    }
    return Written(tensors, values.float() * scale)


def ascend_static_fp16(weight: Tensor) -> Written:
    """The bits of deq_scale in an integer."""
    written = ascend_static(weight)
    bits = written.tensors["deq_scale"].view(torch.int32).to(torch.int64)
    return Written({**written.tensors, "deq_scale": bits}, written.meaning)


def ascend_mix(weight: Tensor) -> Written:
    dynamic, static = ascend_dynamic(weight), ascend_static(weight)
    return Written({**static.tensors, **dynamic.tensors}, dynamic.meaning)


def ascend_int4(weight: Tensor) -> Written:
    """Version 1.0.0: two rows a byte."""
    values, scale = rows_int8(weight, 7)
    packed = (values[0::2] & 15) | (values[1::2] << 4)
    tensors = {
        "weight": packed,
        "weight_scale": scale,
        "weight_offset": torch.zeros_like(scale),
        "scale_bias": 8 * (values.float() * scale).sum(1, keepdim=True),
    }
    return Written(tensors, values.float() * scale)


def ascend_int4_wide_bias(weight: Tensor) -> Written:
    """The same as for row-parallel matrices: `scale_bias` for 16 slices of the inputs."""
    written = ascend_int4(weight)
    parts = torch.zeros(len(weight), 16)
    parts[:, 0] = written.tensors["scale_bias"].squeeze(1)
    return Written({**written.tensors, "scale_bias": parts}, written.meaning)


def ascend_int4_groups(weight: Tensor, group: int = 16) -> Written:
    """Two stages of scales; one value a byte."""
    num_outputs, num_inputs = weight.shape
    first = torch.full((num_outputs, 1), 0.5)
    grouped = weight.view(num_outputs, -1, group)
    second = grouped.abs().amax(2) / 7 / first
    values = (grouped / (second * first).unsqueeze(2)).round().to(torch.int8)
    meaning = (values.float() * (second * first).unsqueeze(2)).view(num_outputs, num_inputs)
    tensors = {
        "weight": values.view(num_outputs, num_inputs),
        "weight_scale": first,
        "weight_offset": torch.zeros_like(first),
        "weight_scale_second": second,
        "weight_offset_second": torch.zeros_like(second, dtype=torch.int64),
    }
    return Written(tensors, meaning)


def ascend_int4_unpacked(weight: Tensor) -> Written:
    """W4A4_DYNAMIC."""
    values, scale = rows_int8(weight, 7)
    tensors = {"weight": values, "weight_scale": scale, "weight_offset": torch.zeros_like(scale)}
    return Written(tensors, values.float() * scale)


def to_fp8(values: Tensor) -> Tensor:
    return values.clamp(-448, 448).to(torch.float8_e4m3fn)


def ascend_fp8(weight: Tensor) -> Written:
    scale = weight.abs().amax(1, keepdim=True) / 448
    values = to_fp8(weight / scale)
    tensors = {"weight": values, "weight_scale": scale, "weight_offset": torch.zeros_like(scale)}
    return Written(tensors, values.float() * scale)


def groups_of_32(weight: Tensor) -> Tensor:
    """[out, groups, 32], zeros at the end."""
    num_groups = -(-weight.shape[1] // 32)
    padded = torch.zeros(len(weight), num_groups * 32)
    padded[:, : weight.shape[1]] = weight
    return padded.view(len(weight), num_groups, 32)


def exponents(grouped: Tensor, largest: float) -> tuple[Tensor, Tensor]:
    """(E8M0 codes, scales) under which the groups fit."""
    power = (grouped.abs().amax(2) / largest).log2().ceil()
    return (power + 127).to(torch.uint8), power.exp2()


def mx_fp8(weight: Tensor) -> Written:
    grouped = groups_of_32(weight)
    codes, scale = exponents(grouped, 448)
    values = to_fp8(grouped / scale.unsqueeze(2))
    num_inputs = weight.shape[1]
    meaning = (values.float() * scale.unsqueeze(2)).flatten(1)[:, :num_inputs]
    return Written({"weight": values.flatten(1)[:, :num_inputs].contiguous(), "weight_scale": codes}, meaning)


FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def mx_fp4(weight: Tensor, name: str = "weight") -> Written:
    grouped = groups_of_32(weight)
    codes, scale = exponents(grouped, 6)
    nearest = ((grouped / scale.unsqueeze(2)).unsqueeze(-1) - FP4).abs().argmin(-1)
    meaning = (FP4[nearest] * scale.unsqueeze(2)).flatten(1)[:, : weight.shape[1]]
    flat = nearest.flatten(1)[:, : weight.shape[1]].to(torch.uint8)
    return Written({name: flat[:, 0::2] | (flat[:, 1::2] << 4), "weight_scale": codes}, meaning)


def fp8_blocks(weight: Tensor, block: int = 32, name: str = "weight_scale_inv") -> Written:
    """Blocks at the edges are smaller."""
    num_outputs, num_inputs = weight.shape
    rows, columns = torch.arange(num_outputs) // block, torch.arange(num_inputs) // block
    scale = torch.zeros(int(rows[-1]) + 1, int(columns[-1]) + 1)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            part = weight[i * block : (i + 1) * block, j * block : (j + 1) * block]
            scale[i, j] = part.abs().max() / 448
    spread = scale[rows][:, columns]
    values = to_fp8(weight / spread)
    return Written({"weight": values, name: scale}, values.float() * spread)


def fp8_tensor(weight: Tensor) -> Written:
    scale = weight.abs().max().view(1) / 448
    values = to_fp8(weight / scale)
    tensors = {"weight": values, "weight_scale": scale, "input_scale": torch.tensor([0.1])}
    return Written(tensors, values.float() * scale)


def words(numbers: Tensor, bits: int, axis: int) -> Tensor:
    """Unsigned numbers to int32 words along an axis, the first in the lowest bits; filled up with zeros."""
    per_word = 32 // bits
    moved = numbers.long().movedim(axis, -1)
    missing = -moved.shape[-1] % per_word
    moved = torch.nn.functional.pad(moved, (0, missing))
    shifts = torch.arange(per_word) * bits
    packed = (moved.reshape(*moved.shape[:-1], -1, per_word) << shifts).sum(-1)
    signed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return signed.to(torch.int32).movedim(-1, axis).contiguous()


def gptq(
    weight: Tensor, bits: int = 4, group: int = 16, *, symmetric: bool = True, order: Tensor | None = None
) -> Written:
    """Version 1: a zero point is stored less one. With an order, neighbours in it share a group."""
    num_outputs, num_inputs = weight.shape
    index = torch.arange(num_inputs) // group
    if order is not None:
        index[order] = torch.arange(num_inputs) // group
    num_groups, top = int(index.max()) + 1, (1 << bits) - 1
    scales, zeros = torch.empty(num_groups, num_outputs), torch.empty(num_groups, num_outputs)
    for i in range(num_groups):
        part = weight[:, index == i]
        if symmetric:
            scales[i], zeros[i] = part.abs().amax(1) / (top // 2), (top + 1) // 2
        else:
            low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            scales[i] = (high - low) / top
            zeros[i] = (-low / scales[i]).round().clamp(1, top)
    scales = scales.half().float()
    numbers = (weight / scales[index].t() + zeros[index].t()).round().clamp(0, top)
    tensors = {
        "qweight": words(numbers.t(), bits, 0),
        "qzeros": words(zeros - 1, bits, 1),
        "scales": scales.half(),
        "g_idx": index.to(torch.int32),
    }
    return Written(tensors, (numbers - zeros[index].t()) * scales[index].t())


def compressed_int8(weight: Tensor) -> Written:
    values, scale = rows_int8(weight)
    scale = scale.bfloat16()
    return Written({"weight": values, "weight_scale": scale}, values.float() * scale.float())


def compressed_int8_static(weight: Tensor) -> Written:
    values, scale = rows_int8(weight)
    tensors = {
        "weight": values,
        "weight_scale": scale,
        "input_scale": torch.tensor([STATIC_SCALE]),
        "input_zero_point": torch.tensor([int(STATIC_OFFSET)], dtype=torch.int8),
    }
    return Written(tensors, values.float() * scale)


def compressed_packed(weight: Tensor, bits: int = 4, group: int = 0, *, symmetric: bool = True) -> Written:
    num_outputs, num_inputs = weight.shape
    group = group or num_inputs
    grouped = weight.view(num_outputs, -1, group)
    half = 1 << (bits - 1)
    if symmetric:
        scale, zero = grouped.abs().amax(2) / (half - 1), torch.zeros(grouped.shape[:2])
    else:
        low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
        scale = (high - low) / (2 * half - 1)
        zero = (-half - low / scale).round()
    numbers = (grouped / scale.unsqueeze(2) + zero.unsqueeze(2)).round().clamp(-half, half - 1)
    meaning = ((numbers - zero.unsqueeze(2)) * scale.unsqueeze(2)).view(num_outputs, num_inputs)
    tensors = {
        "weight_packed": words(numbers.view(num_outputs, num_inputs) + half, bits, 1),
        "weight_scale": scale,
        "weight_shape": torch.tensor([num_outputs, num_inputs]),
    }
    if not symmetric:
        tensors["weight_zero_point"] = words(zero + half, bits, 0)
    return Written(tensors, meaning)
