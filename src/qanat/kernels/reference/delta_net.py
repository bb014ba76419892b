"""Convolution, gates and delta rule of a linear-attention layer, one after the other, and rows that are held back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from qanat.kernels.held_rows import HeldRows
from qanat.kernels.lens import Lens, as_ints
from qanat.kernels.reference.delta import causal_conv, delta_gates, gated_delta_rule
from qanat.kernels.state_stores import StateStore


def gated_delta_net(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    conv_states: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    host_query_lens: Lens,
    held: HeldRows | None,
    stores: Sequence[StateStore] = (),
) -> Tensor:
    """Absorbs accepted rows, computes the step's, and takes back what those that are held did to the states."""
    query_lens = as_ints(host_query_lens)
    gates = delta_gates(a, b, a_log, dt_bias)
    if stores:
        _check_stores(stores, held, state_ids.tolist(), query_lens)
    if held is None:
        return _passed(x, weight, gates, conv_states, states, state_ids, num_computed, query_lens, stores)
    _check(held, num_computed, query_lens)
    _absorb(x.dtype, weight, conv_states, states, state_ids, held)
    picked = [r for r, is_held in enumerate(held.are_held.tolist()) if is_held and query_lens[r]]
    ids = state_ids[torch.tensor(picked, dtype=torch.int64, device=x.device)].long()
    before = conv_states[ids], states[ids]
    out = _passed(x, weight, gates, conv_states, states, state_ids, num_computed, query_lens, stores)
    conv_states[ids], states[ids] = before
    starts = list(itertools.accumulate(query_lens, initial=0))
    for r, state in zip(picked, ids.tolist(), strict=True):
        own = slice(starts[r], starts[r + 1])
        held.inputs[state, : query_lens[r]] = x[own].to(held.inputs.dtype)
        for index, gate in enumerate(gates):
            held.gates[state, : query_lens[r], index] = gate[own]
    return out


def _check(held: HeldRows, num_computed: Tensor, query_lens: Sequence[int]) -> None:
    """Raises IndexError as the native kernels do."""
    max_held = held.inputs.shape[1]
    rows = zip(held.accepted.tolist(), held.are_held.tolist(), num_computed.tolist(), query_lens, strict=True)
    for (first, number), is_held, done, query_len in rows:
        is_holding = is_held and query_len > 0
        if min(first, number) < 0 or first + number > max_held or (is_holding and query_len > max_held):
            raise IndexError("more rows than can be held")
        if done == 0 and (is_holding or number > 0):
            raise IndexError("a new request holds no rows")


def _absorb(
    dtype: torch.dtype,
    weight: Tensor,
    conv_states: Tensor,
    states: Tensor,
    state_ids: Tensor,
    held: HeldRows,
) -> None:
    """Brings the states of requests to where the accepted ones of their held rows have passed."""
    places, lens = [], []
    for state, (first, number) in zip(state_ids.tolist(), held.accepted.tolist(), strict=True):
        places += [(state, row) for row in range(first, first + number)]
        lens.append(number)
    if not places:
        return
    at, row = torch.tensor(places, device=conv_states.device).unbind(1)
    log_decay, strength = held.gates[at, row].unbind(1)
    are_old = torch.ones_like(state_ids)
    inputs = held.inputs[at, row].to(dtype)
    _mixed(inputs, weight, (log_decay, strength), conv_states, states, state_ids, are_old, lens)


def _check_stores(
    stores: Sequence[StateStore], held: HeldRows | None, state_ids: Sequence[int], query_lens: Sequence[int]
) -> None:
    """Raises IndexError as the native kernels do."""
    are_held = held.are_held.tolist() if held is not None else [0] * len(query_lens)
    before = (-1, 0)
    for request, num_rows, state_id in stores:
        is_there = 0 <= request < len(query_lens) and (request, num_rows) > before
        if not is_there or not 0 < num_rows <= query_lens[request] or are_held[request]:
            raise IndexError("a state is to be kept where none passes")
        if state_id == state_ids[request]:
            raise IndexError("a state is to be kept where none passes")
        before = request, num_rows


def _passed(
    x: Tensor,
    weight: Tensor,
    gates: tuple[Tensor, Tensor],
    conv_states: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    query_lens: Sequence[int],
    stores: Sequence[StateStore],
) -> Tensor:
    """`_mixed`, in as many rounds as it takes to meet the states that are to be left at other places."""
    if not stores:
        return _mixed(x, weight, gates, conv_states, states, state_ids, num_computed, query_lens)
    starts = list(itertools.accumulate(query_lens, initial=0))
    out = x.new_zeros(x.shape[0], *states.shape[1::2])
    for r, query_len in enumerate(query_lens):
        places = {store.num_rows: store.state_id for store in stores if store.request == r}
        done, own = num_computed[r : r + 1].clone(), state_ids[r : r + 1]
        for begin, end in itertools.pairwise(sorted({0, query_len, *places})):
            rows = slice(starts[r] + begin, starts[r] + end)
            part = gates[0][rows], gates[1][rows]
            out[rows] = _mixed(x[rows], weight, part, conv_states, states, own, done, [end - begin])
            done += end - begin
            if end in places:
                conv_states[places[end]], states[places[end]] = conv_states[own[0]], states[own[0]]
    return out


def _mixed(
    x: Tensor,
    weight: Tensor,
    gates: tuple[Tensor, Tensor],
    conv_states: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    query_lens: Sequence[int],
) -> Tensor:
    """Convolution and delta rule, both of which replace the states."""
    _, num_value_heads, key_dim, value_dim = states.shape
    mixed = causal_conv(x, weight, conv_states, state_ids, num_computed, query_lens)
    values = num_value_heads * value_dim
    keys = (x.shape[1] - values) // 2
    q, k, v = mixed.split((keys, keys, values), -1)
    starts = torch.tensor([0, *itertools.accumulate(query_lens)], device=x.device)
    return gated_delta_rule(
        q.unflatten(1, (-1, key_dim)),
        k.unflatten(1, (-1, key_dim)),
        v.unflatten(1, (num_value_heads, value_dim)),
        *gates,
        states,
        state_ids,
        num_computed,
        starts,
        query_lens,
    )
