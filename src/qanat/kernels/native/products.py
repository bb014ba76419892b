"""Products with packed matrices. A weight that was not packed (another type, another device) takes the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from qanat.kernels.native.module import native
from qanat.kernels.native.packed import PackedWeight, is_packable, pack, plain_type
from qanat.kernels.native.tensors import FLOAT_TYPES, address_of, are_native, new, readable, rows
from qanat.kernels.quantised import QuantisedMatrix
from qanat.kernels.recording import host_call
from qanat.kernels.reference import choice as reference_choice
from qanat.kernels.reference import mlp as reference
from qanat.kernels.rows import Rows, plain

Weight: TypeAlias = Tensor | QuantisedMatrix | PackedWeight


def pack_matrix(weight: Tensor | QuantisedMatrix, segment_length: int = 0) -> Weight:
    """See `qanat.kernels.ops.pack_matrix`."""
    return pack(weight, segment_length) if is_packable(weight) else weight


def pack_experts(weight: Tensor | QuantisedMatrix) -> Weight:
    """See `qanat.kernels.ops.pack_experts`."""
    return pack_matrix(weight)


def linear(x: Rows, weight: Weight) -> Tensor:
    """See `qanat.kernels.ops.linear`."""
    if not isinstance(weight, PackedWeight):
        return host_call(reference.linear, plain(x), weight)
    return _product(x, (weight,), x.dtype)[0]


def linears(x: Rows, weights: Sequence[Weight]) -> tuple[Tensor, ...]:
    """See `qanat.kernels.ops.linears`."""
    packed = tuple(weight for weight in weights if isinstance(weight, PackedWeight))
    if len(packed) < len(weights):
        return tuple(linear(x, weight) for weight in weights)
    return _product(x, packed, x.dtype)


def logits(hidden: Rows, weight: Weight) -> Tensor:
    """See `qanat.kernels.ops.logits`."""
    if not isinstance(weight, PackedWeight):
        return host_call(reference.logits, plain(hidden), weight)
    return _product(hidden, (weight,), torch.float32)[0]


def _product(given: Rows, weights: tuple[PackedWeight, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    x = plain(given)
    if not are_native(x):
        return tuple(out.to(dtype) for out in _product(x.float(), weights, torch.float32))
    x = readable(x)
    outs = tuple(new((x.shape[0], weight.shape[0]), dtype) for weight in weights)
    is_narrow = dtype == torch.bfloat16
    targets = [
        (weight.matrix, shared_at(given, weight), out.data_ptr(), is_narrow)
        for weight, out in zip(weights, outs, strict=True)
    ]
    native().linear(rows(x), x.shape[0], targets)
    return outs


def shared_at(x: Rows, weight: PackedWeight) -> int:
    """Address of the rows as this weight reads them; 0 where they are still to be made."""
    if isinstance(x, Tensor) or x.memory is None or x.format != weight.row_format:
        return 0
    return x.memory.data_ptr()


def embedding(token_ids: Tensor, weight: Weight, dtype: torch.dtype | None = None) -> Tensor:
    """See `qanat.kernels.ops.embedding`."""
    ids = token_ids.to(torch.int64).contiguous()
    if isinstance(weight, Tensor) and weight.device.type == "cpu" and weight.is_contiguous():
        return _gathered(ids, weight)
    if not isinstance(weight, PackedWeight):
        return host_call(reference.embedding, token_ids, weight, dtype)
    wanted = plain_type(weight) or dtype or torch.float32
    if wanted not in FLOAT_TYPES:
        return weight.rows(ids, torch.float32).to(wanted)
    return weight.rows(ids, wanted)


def _gathered(ids: Tensor, table: Tensor) -> Tensor:
    num_rows, size = table.shape
    out = new((ids.shape[0], size), table.dtype)
    row_bytes = size * table.itemsize
    native().gather(ids.data_ptr(), ids.shape[0], table.data_ptr(), num_rows, row_bytes, out.data_ptr())
    return out


def known_tokens(choice: Tensor) -> Tensor:
    """See `qanat.kernels.ops.known_tokens`."""
    if choice.device.type != "cpu" or not choice.is_contiguous():
        return host_call(reference_choice.known_tokens, choice)
    out = new((choice.shape[1],), torch.int64)
    native().known_tokens(choice.data_ptr(), choice.shape[1], out.data_ptr())
    return out


def join_rows(parts: Sequence[Tensor]) -> Tensor:
    """See `qanat.kernels.ops.join_rows`."""
    own = [readable(part) for part in parts]
    num_rows, size = own[0].shape[0], own[0].itemsize
    out = new((num_rows, sum(part.shape[1] for part in own)), own[0].dtype)
    places = [(part.data_ptr(), size * part.shape[1], size * part.stride(0)) for part in own]
    native().join(places, num_rows, out.data_ptr())
    return out


def store_rows(x: Tensor, places: Tensor, table: Tensor) -> Tensor:
    """See `qanat.kernels.ops.store_rows`."""
    x = x.contiguous()
    row_bytes = table.shape[1] * table.itemsize
    native().scatter(x.data_ptr(), places.data_ptr(), x.shape[0], row_bytes, table.data_ptr(), table.shape[0])
    return table


def choose_tokens(scores: Tensor, num_valid: int, draws: Tensor | None = None) -> Tensor:
    """See `qanat.kernels.ops.choose_tokens`."""
    if scores.dtype != torch.float32 or not are_native(scores) or scores.stride(-1) != 1:
        return host_call(reference_choice.choose_tokens, scores, num_valid, draws)
    num_rows, num_scores = scores.shape
    chosen = new((2, num_rows), torch.int64)
    draws_at = address_of(draws)
    native().choice(
        scores.data_ptr(), scores.stride(0), num_rows, num_scores, num_valid, draws_at, chosen.data_ptr()
    )
    return chosen
