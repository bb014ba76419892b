from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from qanat.kernels.native.arena import make_arena, new, outputs_in

SIZE = 1 << 14


def keeping_values(tensors: dict[int, torch.Tensor]) -> set[int]:
    """Those whose elements are all equal still."""
    return {place for place, one in tensors.items() if not one.numel() or bool((one == one[0]).all())}


@given(st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 7)), max_size=60))
def test_regions_never_overlap_and_all_come_back(calls: list[tuple[int, int]]) -> None:
    """Tensors of any sizes that die in any order: what lives keeps its values, what died leaves no hole behind."""
    arena = make_arena(SIZE)
    alive: dict[int, torch.Tensor] = {}
    with outputs_in(arena):
        for value, (num_bytes, place) in enumerate(calls):
            alive.pop(place, None)
            alive[place] = new((num_bytes,), torch.uint8).fill_(value)
            assert set(alive) == keeping_values(alive)
    alive.clear()
    assert arena.used_bytes == 0 and arena.num_holes == 1


def test_a_view_keeps_its_region() -> None:
    arena = make_arena(SIZE)
    with outputs_in(arena):
        view = new((4, 8), torch.float32)[1:].flatten()
        assert arena.used_bytes == 128
        del view
        assert arena.used_bytes == 0


def test_what_does_not_fit_is_asked_of_torch_and_counted() -> None:
    arena = make_arena(256)
    with outputs_in(arena):
        first, second = new((50,), torch.float32), new((50,), torch.float32)
    assert (arena.num_taken, arena.num_missed) == (1, 1)
    second.fill_(1.0)
    first.fill_(2.0)
    assert float(second.sum()) == 50.0
    assert arena.peak_bytes == 256


def test_an_overlay_is_the_same_memory() -> None:
    arena = make_arena(SIZE)
    other = arena.overlay()
    with outputs_in(arena):
        first = new((10,), torch.float32)
    with outputs_in(other):
        second = new((10,), torch.float32)
    assert first.data_ptr() == second.data_ptr() and other.used_bytes == 64
