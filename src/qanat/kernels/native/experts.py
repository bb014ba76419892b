"""Mixtures of experts with packed matrices. What was not packed takes the reference."""

from __future__ import annotations

from torch import Tensor

from qanat.kernels.native import products, rowwise
from qanat.kernels.native.module import native
from qanat.kernels.native.packed import PackedWeight
from qanat.kernels.native.products import Weight, shared_at
from qanat.kernels.native.tensors import NO_ROWS, RowsTuple, are_native, is_bf16, new, readable, rows
from qanat.kernels.packing import as_given
from qanat.kernels.recording import host_call
from qanat.kernels.reference import moe as reference
from qanat.kernels.rows import Rows, SharedExpert, plain


def moe_experts(given: Rows, expert_ids: Tensor, gate_up: Weight, down: Weight) -> Tensor:
    """See `qanat.kernels.ops.moe_experts`."""
    x = plain(given)
    if not (isinstance(gate_up, PackedWeight) and isinstance(down, PackedWeight)):
        return host_call(reference.moe_experts, x, expert_ids, as_given(gate_up), as_given(down))
    if not are_native(x):
        return moe_experts(x.float(), expert_ids, gate_up, down).to(x.dtype)
    x, ids = readable(x), expert_ids.contiguous()
    num_rows, top_k = ids.shape
    out = new((num_rows, top_k, down.shape[1]), x.dtype)
    native().experts(
        rows(x),
        shared_at(given, gate_up),
        num_rows,
        ids.data_ptr(),
        top_k,
        gate_up.matrix,
        down.matrix,
        out.data_ptr(),
        is_bf16(out),
    )
    return out


def moe_mixture(
    given: Rows,
    expert_ids: Tensor,
    weights: Tensor,
    gate_up: Weight,
    down: Weight,
    shared: SharedExpert | None,
) -> Tensor:
    """See `qanat.kernels.ops.moe_mixture`."""
    x = plain(given)
    is_packed = isinstance(gate_up, PackedWeight) and isinstance(down, PackedWeight)
    if not is_packed or not are_native(x) or not (shared is None or _is_covered(shared, x)):
        return _one_by_one(given, expert_ids, weights, gate_up, down, shared)
    x, ids, weights = readable(x), expert_ids.contiguous(), weights.float().contiguous()
    out = new((x.shape[0], down.shape[1]), x.dtype)
    native().mixture(
        rows(x),
        shared_at(given, gate_up),
        x.shape[0],
        ids.data_ptr(),
        ids.shape[1],
        gate_up.matrix,
        down.matrix,
        weights.data_ptr(),
        *_shared_arguments(shared),
        out.data_ptr(),
        is_bf16(out),
    )
    return out


def _is_covered(shared: SharedExpert, x: Tensor) -> bool:
    """Whether its tensors have the type of x, and can be read where they lie."""
    tensors = (shared.gate, shared.up, shared.scale)
    is_native = isinstance(shared.down, PackedWeight) and all(each.dtype == x.dtype for each in tensors)
    return is_native and all(each.stride(-1) == 1 for each in tensors[:2]) and shared.scale.is_contiguous()


def _shared_arguments(shared: SharedExpert | None) -> tuple[RowsTuple, RowsTuple, object, int]:
    if shared is None:
        return NO_ROWS, NO_ROWS, None, 0
    return rows(shared.gate), rows(shared.up), shared.down.matrix, shared.scale.data_ptr()


def _one_by_one(
    x: Rows,
    expert_ids: Tensor,
    weights: Tensor,
    gate_up: Weight,
    down: Weight,
    shared: SharedExpert | None,
) -> Tensor:
    routed = moe_experts(x, expert_ids, gate_up, down)
    if shared is None:
        return rowwise.moe_combine(routed, weights, None, None)
    own = products.linear(rowwise.swiglu(shared.gate, shared.up), shared.down)
    return rowwise.moe_combine(routed, weights, own, shared.scale)
