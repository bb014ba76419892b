"""Routed experts, the shared expert and their sum in one call have the bits of each op on its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qanat.kernels.native import experts, products, rowwise, shared_rows
from qanat.kernels.native.packed import PackedWeight, pack
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.kernels.reference import moe as reference
from qanat.kernels.rows import SharedExpert, row_format
from tests.kernels.native.paths import TYPES, close, on_every_quantised_path, same_bits

NUM_EXPERTS, TOP_K, HIDDEN, INNER, SHARED_INNER = 6, 2, 64, 40, 72
KINDS = ("int8", "int4", "plain")


def stack(kind: str, *shape: int) -> Tensor | Int8Matrix | Int4Matrix:
    if kind == "plain":
        return torch.randn(shape) * shape[-1] ** -0.5
    if kind == "int8":
        return Int8Matrix(torch.randint(-128, 128, shape, dtype=torch.int8), torch.rand(shape[:-1]) * 0.001)
    values = torch.randint(-8, 8, shape, dtype=torch.int8)
    return Int4Matrix(values, torch.rand(*shape[:-1], shape[-1] // 8) * 0.02, 8)


class Mixture:
    """Matrices and rows of one kind and type; the shared expert's width differs from the others'."""

    def __init__(self, kind: str, num_rows: int, dtype: torch.dtype) -> None:
        self.gate_up, self.down = (
            stack(kind, NUM_EXPERTS, 2 * INNER, HIDDEN),
            stack(kind, NUM_EXPERTS, HIDDEN, INNER),
        )
        self.shared_down = stack(kind, HIDDEN, SHARED_INNER)
        self.packed = [pack(each) for each in (self.gate_up, self.down, self.shared_down)]
        self.x, self.weights = torch.randn(num_rows, HIDDEN).to(dtype), torch.rand(num_rows, TOP_K)
        self.ids = torch.rand(num_rows, NUM_EXPERTS - 1).argsort(1)[:, :TOP_K].contiguous()
        # Columns of a wider tensor, as a product of both gives them.
        self.gate, self.up = torch.randn(num_rows, 2 * SHARED_INNER).to(dtype).chunk(2, -1)
        self.scale = torch.randn(num_rows, 1).to(dtype)

    def shared(self, down: object) -> SharedExpert:
        return SharedExpert(self.gate, self.up, down, self.scale)

    def one_by_one(self, has_shared: bool) -> Tensor:
        gate_up, down, shared_down = self.packed
        routed = experts.moe_experts(self.x, self.ids, gate_up, down)
        if not has_shared:
            return rowwise.moe_combine(routed, self.weights, None, None)
        own = products.linear(rowwise.swiglu(self.gate, self.up), shared_down)
        return rowwise.moe_combine(routed, self.weights, own, self.scale)

    def at_once(self, has_shared: bool, first: int = 0, last: int | None = None) -> Tensor:
        gate_up, down, shared_down = self.packed
        part = slice(first, last)
        shared = SharedExpert(self.gate[part], self.up[part], shared_down, self.scale[part])
        own = shared if has_shared else None
        return experts.moe_mixture(self.x[part], self.ids[part], self.weights[part], gate_up, down, own)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("num_rows", [1, 9, 130])
def test_a_mixture_is_its_ops_one_after_another(kind: str, dtype: torch.dtype, num_rows: int) -> None:
    mixture = Mixture(kind, num_rows, dtype)
    for has_shared in (True, False):
        (found,) = on_every_quantised_path(lambda: (mixture.at_once(has_shared),))  # noqa: B023 - called at once
        assert same_bits(found, mixture.one_by_one(has_shared))
        alone = [mixture.at_once(has_shared, row, row + 1) for row in range(0, num_rows, 9)]
        assert same_bits(torch.cat(alone), found[::9])


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_mixture_reads_shared_rows(kind: str) -> None:
    mixture = Mixture(kind, 5, torch.bfloat16)
    gate_up, down, shared_down = mixture.packed
    form = row_format(gate_up)
    assert form is not None
    rows = shared_rows.share_rows(mixture.x, form)
    found = experts.moe_mixture(
        rows, mixture.ids, mixture.weights, gate_up, down, mixture.shared(shared_down)
    )
    assert same_bits(found, mixture.one_by_one(has_shared=True))


def test_a_mixture_is_near_the_reference() -> None:
    mixture = Mixture("plain", 9, torch.float32)
    expected = reference.moe_mixture(
        mixture.x,
        mixture.ids,
        mixture.weights,
        mixture.gate_up,
        mixture.down,
        mixture.shared(mixture.shared_down),
    )
    close(mixture.at_once(has_shared=True), expected, torch.float32)


@pytest.mark.parametrize("missing", ["experts", "shared", "type", "scale"])
def test_what_the_module_does_not_cover_is_computed_op_by_op(missing: str) -> None:
    mixture = Mixture("plain", 4, torch.float32)
    packed: list[PackedWeight | Tensor] = list(mixture.packed)
    expected = mixture.at_once(has_shared=True)
    shared = mixture.shared(packed[2])
    x = mixture.x
    if missing == "experts":
        packed[0] = mixture.gate_up  # type: ignore[assignment]  # a tensor of this kind
    elif missing == "shared":
        shared = mixture.shared(mixture.shared_down)
    elif missing == "type":
        x = x.half()
        shared = SharedExpert(mixture.gate.half(), mixture.up.half(), packed[2], mixture.scale.half())
    else:
        shared = shared._replace(scale=mixture.scale.expand(-1, 2)[:, :1])
    found = experts.moe_mixture(x, mixture.ids, mixture.weights, packed[0], packed[1], shared)
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)
