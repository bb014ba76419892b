"""Convolution, gates and delta rule: any cut, any company, any path, and rows that are held until they are accepted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qanat.kernels.held_rows import HeldRows
from qanat.kernels.native import module, sequence
from qanat.kernels.native.arena import make_arena
from qanat.kernels.native.graph import capture
from qanat.kernels.reference import delta, delta_net
from tests.kernels.native.paths import TYPES, close, on_every_path, same_bits

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS = 2, 4, 32, 48, 4
CHANNELS = 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM
LENGTH, NUM_STATES, MAX_HELD = 90, 5, 5

Piece = tuple[int, int, int]
Run = Callable[..., Tensor]


def int32(values: Sequence[object]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Layer:
    """Three sequences of one layer; states that requests never had are NaN."""

    def __init__(self, dtype: torch.dtype, state_dtype: torch.dtype | None = None) -> None:
        self.dtype, self.state_dtype = dtype, state_dtype or dtype
        self.x = torch.randn(3, LENGTH, CHANNELS).to(dtype)
        self.a, self.b = torch.randn(2, 3, LENGTH, VALUE_HEADS).to(dtype).unbind(0)
        self.weight = torch.randn(TAPS, CHANNELS).to(dtype).t()
        self.vectors = torch.randn(VALUE_HEADS), torch.randn(VALUE_HEADS).to(dtype)
        self.reset()

    def reset(self) -> None:
        """Nobody has a state yet."""
        self.conv = torch.full((NUM_STATES, TAPS - 1, CHANNELS), torch.nan, dtype=self.state_dtype)
        self.rule = torch.full((NUM_STATES, VALUE_HEADS, KEY_DIM, VALUE_DIM), torch.nan)
        self.inputs = torch.full((NUM_STATES, MAX_HELD, CHANNELS), torch.nan, dtype=self.state_dtype)
        self.gates = torch.full((NUM_STATES, MAX_HELD, 2, VALUE_HEADS), torch.nan)

    def twin(self) -> Layer:
        """The same sequences with states of its own."""
        other = copy.copy(self)
        other.reset()
        return other

    def step(
        self,
        pieces: Sequence[Piece],
        held: tuple[Sequence[tuple[int, int]], Sequence[int]] | None = None,
        run: Run = sequence.gated_delta_net,
    ) -> list[Tensor]:
        """One step of (request, first, last) pieces and a row of padding; results by piece."""
        parts = (torch.cat([t[r, a:b] for r, a, b in pieces] + [t[0, :1]]) for t in (self.x, self.a, self.b))
        lens = [b - a for _, a, b in pieces]
        rows = None
        if held is not None:
            rows = HeldRows(self.inputs, self.gates, int32(held[0]).view(-1, 2), int32(held[1]))
        ids, done = int32([r + 1 for r, _, _ in pieces]), int32([a for _, a, _ in pieces])
        given = (*parts, self.weight, *self.vectors, self.conv, self.rule, ids, done, lens, rows)
        result = run(*given)
        assert not result[-1].any(), "padding rows are zero"
        return list(result[:-1].split(lens))

    def run(
        self, steps: Sequence[Sequence[Piece]], run: Run = sequence.gated_delta_net
    ) -> tuple[Tensor, ...]:
        """All results, request by request, and the states behind them."""
        self.reset()
        out: dict[tuple[int, int], Tensor] = {}
        for pieces in steps:
            for (r, a, _), rows in zip(pieces, self.step(pieces, run=run), strict=True):
                out |= {(r, a + i): row for i, row in enumerate(rows)}
        return torch.stack([out[key] for key in sorted(out)]), self.conv[1:4].clone(), self.rule[1:4].clone()


WHOLE = [[(r, 0, LENGTH) for r in range(3)]]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("state_dtype", TYPES)
def test_any_cut_in_any_company(dtype: torch.dtype, state_dtype: torch.dtype) -> None:
    layer = Layer(dtype, state_dtype)
    together = on_every_path(lambda: layer.run(WHOLE))
    one_by_one = [[(r, 0, LENGTH)] for r in (1, 2, 0)]
    chunked = [[(r, a, min(a + 13, LENGTH)) for r in (2, 0, 1)] for a in range(0, LENGTH, 13)]
    decoded = [
        [(r, 0, 80) for r in range(3)],
        *([(r, p, p + 1) for r in range(3)] for p in range(80, LENGTH)),
    ]
    for steps in (one_by_one, chunked, decoded):
        for ours, theirs in zip(layer.run(steps), together, strict=True):
            assert same_bits(ours, theirs)
    bound = torch.float32 if dtype == state_dtype == torch.float32 else torch.bfloat16
    for ours, theirs in zip(together, layer.run(WHOLE, delta_net.gated_delta_net), strict=True):
        close(ours, theirs, bound)


def test_weights_may_lie_as_the_checkpoint_has_them() -> None:
    layer = Layer(torch.bfloat16)
    expected = layer.run(WHOLE)
    layer.weight = layer.weight.contiguous()
    for ours, theirs in zip(layer.run(WHOLE), expected, strict=True):
        assert same_bits(ours, theirs)


def test_gates_and_inputs_that_are_held_are_those_of_the_reference() -> None:
    layer = Layer(torch.float32)
    layer.step([(0, 0, 7)])
    layer.step([(0, 7, 10)], ([(0, 0)], [1]))
    expected = delta.delta_gates(layer.a[0, 7:10], layer.b[0, 7:10], *layer.vectors)
    for ours, theirs in zip(layer.gates[1, :3].unbind(1), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert (expected[0] <= 0).all()
    assert same_bits(layer.inputs[1, :3], layer.x[0, 7:10])
    assert layer.inputs[1, 3:].isnan().all() and layer.inputs[2].isnan().all()


@pytest.mark.parametrize("dtype", TYPES)
def test_verifying_leaves_what_plain_decoding_leaves(dtype: torch.dtype) -> None:
    """One request verifies with another share of its rows accepted each time, one decodes, one reads its prompt."""
    layer = Layer(dtype)

    def verify() -> list[Tensor]:
        layer.reset()
        done, count, found = [40, 40, 0], [0, 0], {}
        layer.step([(0, 0, 40), (1, 0, 40)])
        for accepted in (3, 1, 5, 2, 4, 1, 1, 3):
            pieces = [(0, done[0], done[0] + 5), (1, done[1], done[1] + 1), (2, done[2], done[2] + 2)]
            first, *_ = layer.step(pieces, ([(0, count[0]), (0, 0), (0, 0)], [1, 0, 0]))
            found |= {done[0] + i: row for i, row in enumerate(first[:accepted])}
            done, count[0] = [done[0] + accepted, done[1] + 1, done[2] + 2], accepted
        layer.step([(0, done[0], done[0]), (1, done[1], done[1])], ([(0, count[0]), (0, 0)], [0, 0]))
        assert done == [60, 48, 16]
        return [
            torch.stack([found[p] for p in range(40, 60)]),
            layer.conv[1:4].clone(),
            layer.rule[1:4].clone(),
        ]

    results, conv, rule = on_every_path(verify)
    layer.reset()
    layer.step([(0, 0, 40)])
    plain = torch.cat([layer.step([(0, p, p + 1)])[0] for p in range(40, 60)])
    layer.step([(1, 0, 48), (2, 0, 16)])
    assert same_bits(results, plain)
    assert same_bits(conv, layer.conv[1:4]) and same_bits(rule, layer.rule[1:4])


@pytest.mark.parametrize("run", [sequence.gated_delta_net, delta_net.gated_delta_net])
def test_a_state_stops_where_it_is_asked_to(run: Run) -> None:
    """As at a multiple of 64 where a checkpoint is taken, within the rows that were accepted."""
    layer = Layer(torch.bfloat16)
    layer.step([(0, 0, 61)], run=run)
    before = layer.conv.clone(), layer.rule.clone()
    layer.step([(0, 61, 66)], ([(0, 0)], [1]), run)
    assert same_bits(layer.conv, before[0]) and same_bits(layer.rule, before[1])
    for first, number, end in ((0, 3, 64), (3, 1, 65)):
        layer.step([(0, 61, 61)], ([(first, number)], [0]), run)
        own = layer.conv[1].clone(), layer.rule[1].clone()
        fresh = layer.twin()
        fresh.step([(0, 0, end)], run=run)
        assert same_bits(own[0], fresh.conv[1]) and same_bits(own[1], fresh.rule[1])


@settings(max_examples=25, deadline=None)
@given(
    accepted=st.lists(st.integers(1, MAX_HELD), min_size=1, max_size=6),
    drafted=st.lists(st.integers(0, MAX_HELD - 1), min_size=6, max_size=6),
    company=st.integers(0, 2),
    run=st.sampled_from([sequence.gated_delta_net, delta_net.gated_delta_net]),
)
def test_any_drafts_in_any_company(accepted: list[int], drafted: list[int], company: int, run: Run) -> None:
    module.configure(2, "")
    torch.manual_seed(0)
    layer = Layer(torch.bfloat16)
    plain = layer.twin()
    layer.step([(0, 0, 9)], run=run)
    plain.step([(0, 0, 9)], run=run)
    done, count = 9, 0
    for wished, num_drafts in zip(accepted, drafted, strict=False):
        is_held = num_drafts > 0
        others = [(r, done, done + 3 * r) for r in range(1, 1 + company)]
        pieces = [*others, (0, done, done + 1 + num_drafts)]
        held = ([*((0, 0) for _ in others), (0, count)], [*(0 for _ in others), int(is_held)])
        rows = layer.step(pieces, held, run)[-1]
        taken = min(wished, 1 + num_drafts)
        expected = torch.cat([plain.step([(0, p, p + 1)], run=run)[0] for p in range(done, done + taken)])
        assert same_bits(rows[:taken], expected)
        done, count = done + taken, taken if is_held else 0
    layer.step([(0, done, done)], ([(0, count)], [0]), run)
    assert same_bits(layer.conv[1], plain.conv[1]) and same_bits(layer.rule[1], plain.rule[1])


@pytest.mark.parametrize("run", [sequence.gated_delta_net, delta_net.gated_delta_net])
@pytest.mark.parametrize(
    ("piece", "accepted", "is_held", "message"),
    [
        ((0, 8, 8 + MAX_HELD + 1), (0, 0), 1, "more rows than can be held"),
        ((0, 8, 9), (2, MAX_HELD - 1), 0, "more rows than can be held"),
        ((0, 8, 9), (-1, 1), 0, "more rows than can be held"),
        ((0, 0, 2), (0, 0), 1, "a new request holds no rows"),
        ((0, 0, 2), (0, 1), 0, "a new request holds no rows"),
    ],
)
def test_what_cannot_be_held_is_refused(
    run: Run, piece: Piece, accepted: tuple[int, int], is_held: int, message: str
) -> None:
    layer = Layer(torch.float32)
    layer.step([(0, 0, 8)], run=run)
    before = layer.rule.clone()
    with pytest.raises(IndexError, match=message):
        layer.step([piece], ([accepted], [is_held]), run)
    assert same_bits(layer.rule, before)


def test_requests_without_rows_are_left_alone() -> None:
    layer = Layer(torch.bfloat16)
    layer.step([(0, 0, 0), (1, 0, 2)])
    assert layer.conv[:2].isnan().all() and not layer.conv[2].isnan().any()
    assert layer.rule[:2].isnan().all() and not layer.rule[2].isnan().any()


def test_a_row_without_decay_and_write_leaves_the_matrices() -> None:
    layer = Layer(torch.float32)
    layer.step([(0, 0, 8)])
    before = layer.rule.clone()
    layer.a.fill_(-torch.inf)
    layer.b.fill_(-torch.inf)
    layer.step([(0, 8, 11)])
    assert same_bits(layer.rule, before)


def test_a_recorded_step_verifies_whatever_it_is_told_by_then() -> None:
    """The same graph absorbs, holds and does neither: all of it is data."""
    module.configure(2, "")
    layer = Layer(torch.bfloat16)
    other = layer.twin()
    layer.step([(0, 0, 9)])
    other.step([(0, 0, 9)])
    x, a, b = torch.zeros(4, CHANNELS).bfloat16(), *torch.zeros(2, 4, VALUE_HEADS).bfloat16()
    ids, done, lens = int32([1]), int32([0]), int32([0])
    accepted, are_held = int32([[0, 0]]), int32([0])
    held = HeldRows(layer.inputs, layer.gates, accepted, are_held)
    given = (x, a, b, layer.weight, *layer.vectors, layer.conv, layer.rule, ids, done, lens, held)
    graph = capture(lambda: sequence.gated_delta_net(*given), make_arena(2**20))
    assert graph.host_nodes == () and graph.num_ops == 1
    for first, last, number, is_held in ((9, 12, 0, 1), (11, 15, 2, 1), (14, 15, 3, 0), (15, 15, 0, 0)):
        expected = other.step([(0, first, last)], ([(0, number)], [is_held]))[0]
        for buffer, source in ((x, layer.x), (a, layer.a), (b, layer.b)):
            buffer[: last - first] = source[0, first:last]
        done[0], lens[0], are_held[0] = first, last - first, is_held
        accepted[0, 1] = number
        graph.replay()
        assert same_bits(graph.result[: last - first], expected) and not graph.result[last - first :].any()
        assert same_bits(layer.conv, other.conv) and same_bits(layer.rule, other.rule)
