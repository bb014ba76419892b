"""Runs an op on every instruction set and number of threads that there is, and compares bits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from qanat.kernels.native import experts, module, products, rowwise
from qanat.kernels.native.packed import PackedWeight, pack
from qanat.kernels.quantised import QuantisedMatrix

THREADS = (1, 2, 5)
TYPES = (torch.float32, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True if every bit is equal: unlike ==, this tells zeros apart and takes equal NaNs for equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def bytes_of(packed: PackedWeight) -> Tensor:
    """A copy of the memory of a packed weight."""
    memory = (ctypes.c_char * packed.size_bytes).from_address(packed.address)
    return torch.frombuffer(memory, dtype=torch.uint8).clone()


QUANTISED_ONLY = ("avx_vnni", "avx512_vnni", "amx")
"""Sets that differ from the one before in the products of quantised matrices only."""


def on_every_path(run: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
    """What `run` returns, after showing that it is the same on every path that plain kernels have."""
    return _on_each([name for name in module.instruction_sets() if name not in QUANTISED_ONLY], run)


def on_every_quantised_path(run: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
    """The same on all paths."""
    return _on_each(module.instruction_sets(), run)


def _on_each(names: Sequence[str], run: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor]:
    expected: Sequence[Tensor] | None = None
    for name in names:
        for num_threads in THREADS:
            module.configure(num_threads, name)
            results = run()
            if expected is None:
                expected = results
            for ours, theirs in zip(results, expected, strict=True):
                assert same_bits(ours, theirs), f"{name} with {num_threads} threads differs"
    assert expected is not None
    return expected


def close(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> None:
    """Within the op's tolerance of the reference."""
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=bound, atol=bound)


def found_by_experts(x: Tensor, ids: Tensor, gate_up: QuantisedMatrix, down: QuantisedMatrix) -> Tensor:
    """What the experts give on every path, after showing that each is its row's products on its own."""
    packed = products.pack_experts(gate_up), products.pack_experts(down)
    (found,) = on_every_quantised_path(lambda: (experts.moe_experts(x, ids, *packed),))
    for row in range(0, x.shape[0], 7):
        for slot in range(ids.shape[1]):
            expert = int(ids[row, slot])
            pair = products.linear(x[row : row + 1], pack(gate_up.expert(expert)))
            inside = rowwise.swiglu(*pair.chunk(2, -1))
            assert same_bits(products.linear(inside, pack(down.expert(expert)))[0], found[row, slot])
    return found
