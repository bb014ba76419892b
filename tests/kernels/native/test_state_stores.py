"""States that are left at other places while a step passes them have the bits of a step that ends there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qanat.kernels.held_rows import HeldRows
from qanat.kernels.native import module
from qanat.kernels.native import sequence as native
from qanat.kernels.reference import delta_net as reference
from qanat.kernels.state_stores import StateStore

HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM, TAPS = 4, 2, 32, 48, 4
CHANNELS = 2 * KEY_HEADS * KEY_DIM + HEADS * VALUE_DIM
LENS = [70, 1, 129]
STORES = [StateStore(0, 64, 7), StateStore(2, 2, 8), StateStore(2, 64, 9), StateStore(2, 129, 10)]
INPUTS = ("x", "a", "b", "weight", "a_log", "dt_bias")
Run = Callable[..., Tensor]


def numbers(dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)

    def some(*shape: int, of: torch.dtype = dtype) -> Tensor:
        return torch.randn(*shape, generator=generator).to(of)

    return {
        "x": some(sum(LENS), CHANNELS),
        "a": some(sum(LENS), HEADS),
        "b": some(sum(LENS), HEADS),
        "weight": some(CHANNELS, TAPS),
        "a_log": some(HEADS, of=torch.float32),
        "dt_bias": some(HEADS),
        "conv": some(12, TAPS - 1, CHANNELS),
        "states": some(12, HEADS, KEY_DIM, VALUE_DIM, of=torch.float32),
    }


def run(
    op: Run,
    given: dict[str, Tensor],
    parts: list[tuple[int, int, int]],
    stores: list[StateStore],
    held: HeldRows | None = None,
) -> Tensor:
    """One step of (request, first row of it, end) parts; states change in place."""
    starts = [0, LENS[0], LENS[0] + LENS[1]]
    rows = torch.cat([torch.arange(starts[r] + begin, starts[r] + end) for r, begin, end in parts])
    done = torch.tensor([begin + (0 if r == 0 else 64) for r, begin, _ in parts], dtype=torch.int32)
    ids = torch.tensor([1 + r for r, _, _ in parts], dtype=torch.int32)
    inputs = [given[name][rows] if name in ("x", "a", "b") else given[name] for name in INPUTS]
    lens = [end - begin for _, begin, end in parts]
    return op(*inputs, given["conv"], given["states"], ids, done, lens, held, stores)


@pytest.fixture(params=["reference", *module.instruction_sets()])
def provider(request: pytest.FixtureRequest) -> Run:
    if request.param == "reference":
        return reference.gated_delta_net
    module.configure(3, request.param)
    return native.gated_delta_net


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_left_on_the_way_is_that_of_a_step_that_ends_there(provider: Run, dtype: torch.dtype) -> None:
    passed, cut, plain = numbers(dtype), numbers(dtype), numbers(dtype)
    whole = [(r, 0, length) for r, length in enumerate(LENS)]
    out = run(provider, passed, whole, STORES)
    assert torch.equal(out, run(provider, plain, whole, []))
    outs = {}
    for parts in ([(0, 0, 64), (1, 0, 1), (2, 0, 2)], [(0, 64, 70), (2, 2, 64)], [(2, 64, 129)]):
        piece = run(provider, cut, parts, [])
        at = 0
        for r, begin, end in parts:
            outs[r, begin] = piece[at : at + end - begin]
            at += end - begin
            for store in STORES:
                if (store.request, store.num_rows) == (r, end):
                    for name in ("conv", "states"):
                        assert torch.equal(passed[name][store.state_id], cut[name][1 + r]), (store, name)
    assert torch.equal(out, torch.cat([outs[key] for key in sorted(outs)]))
    for name in ("conv", "states"):
        assert torch.equal(passed[name][:7], cut[name][:7])
        assert torch.equal(passed[name][11:], plain[name][11:])


def test_what_is_absorbed_first_is_part_of_the_state(provider: Run) -> None:
    results = []
    for stores in ([StateStore(0, 3, 7)], []):
        given = numbers(torch.float32)
        kept = HeldRows(
            torch.ones(12, 2, CHANNELS),
            torch.full((12, 2, 2, HEADS), -0.5),
            torch.tensor([[0, 2]], dtype=torch.int32),
            torch.tensor([0], dtype=torch.int32),
        )
        run(provider, given, [(2, 0, 3)], stores, kept)
        results.append((given["conv"][7 if stores else 3], given["states"][7 if stores else 3]))
    assert all(torch.equal(left, right) for left, right in zip(*results, strict=True))


@pytest.mark.parametrize(
    "stores",
    [
        [StateStore(0, 0, 7)],
        [StateStore(0, 71, 7)],
        [StateStore(3, 1, 7)],
        [StateStore(0, 5, 1)],
        [StateStore(0, 9, 7), StateStore(0, 9, 8)],
    ],
)
def test_places_where_no_state_passes_are_refused(provider: Run, stores: list[StateStore]) -> None:
    with pytest.raises(IndexError, match="where none passes"):
        run(provider, numbers(torch.float32), [(r, 0, length) for r, length in enumerate(LENS)], stores)
