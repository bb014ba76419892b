"""The linear-attention layer: causal convolution and gated delta rule (Yang et al. 2024, "Gated Delta Networks").

Requests of different lengths run together without padding. Prefill and decode are the same fp32 recurrence (rule
R3), so how a prompt is cut never matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.lens import Lens, as_ints
from qanat.kernels.reference.elementwise import elementwise


def causal_conv(
    x: Tensor,
    weight: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    host_query_lens: Lens,
) -> Tensor:
    """Computes silu(sum over taps of weight * input); the inputs before the step's first come from the state."""
    num_taps = weight.shape[1]
    num_past = num_taps - 1
    query_lens = as_ints(host_query_lens)
    order = [r for r, query_len in enumerate(query_lens) if query_len > 0]
    out = torch.zeros_like(x)
    if not order:
        return out
    num_rows = sum(query_lens)
    picked = torch.tensor(order, device=x.device)
    ids = state_ids.index_select(0, picked).long()
    past = _states_before(states, ids, num_computed.index_select(0, picked))
    # Store, then use (rule R9): the inputs take the state's type before the first product.
    inputs = x[:num_rows].to(states.dtype)
    if num_rows == len(order):
        last = torch.cat((past, inputs.unsqueeze(1)), 1)
        out[:num_rows] = _taps_applied(last.unbind(1), weight, x.dtype)
        states.index_copy_(0, ids, last[:, 1:])
        return out
    rows = inputs.split([query_lens[r] for r in order])
    windows = torch.cat([part for pair in zip(past.unbind(0), rows, strict=True) for part in pair])
    lens = torch.tensor([query_lens[r] for r in order], device=x.device)
    # Row i of the i-th request's window block is num_past rows further for each request up to it.
    first = torch.arange(num_rows, device=x.device) + num_past * torch.arange(
        len(order), device=x.device
    ).repeat_interleave(lens)
    taps = (windows.index_select(0, first + tap) for tap in range(num_taps))
    out[:num_rows] = _taps_applied(taps, weight, x.dtype)
    ends = lens.cumsum(0) + num_past * torch.arange(1, len(order) + 1, device=x.device)
    last = ends.unsqueeze(1) + torch.arange(-num_past, 0, device=x.device)
    states.index_copy_(0, ids, windows[last])
    return out


def _taps_applied(taps: Iterable[Tensor], weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The convolution's results, of the inputs [n, C] at each tap, oldest first."""
    total = sum(rows.float() * weight[:, tap].float() for tap, rows in enumerate(taps))
    assert isinstance(total, Tensor), "a convolution has taps"
    return elementwise(F.silu, total.to(dtype))


def delta_gates(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Log-decay g = -exp(A_log) softplus(a + dt_bias), never above 0, and write strength beta = sigmoid(b)."""
    log_decay = -a_log.float().exp() * elementwise(F.softplus, a.float() + dt_bias.float())
    return log_decay, elementwise(torch.sigmoid, b).float()


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    query_start_loc: Tensor,
    host_query_lens: Lens,
) -> Tensor:
    """Per token and value head: S <- e^g S; d = beta (v - k S); S <- S + k d; o = q S."""
    out = torch.zeros_like(v, memory_format=torch.contiguous_format)
    query_lens = as_ints(host_query_lens)
    # Longest first: the requests that still have a token at time t are then the first ones of the list.
    order = sorted(
        (r for r, query_len in enumerate(query_lens) if query_len > 0), key=lambda r: -query_lens[r]
    )
    if not order:
        return out
    lens = [query_lens[r] for r in order]
    picked = torch.tensor(order, device=q.device)
    ids = state_ids.index_select(0, picked).long()
    state = _states_before(states, ids, num_computed.index_select(0, picked))
    active = _active_per_time(lens)
    rows = _time_major_rows(query_start_loc.index_select(0, picked), active)
    repeats = v.shape[1] // k.shape[1]
    queries = _unit(q.index_select(0, rows), repeats) * q.shape[-1] ** -0.5
    keys = _unit(k.index_select(0, rows), repeats)
    values = v.index_select(0, rows).float()
    decay = elementwise(torch.exp, log_decay.index_select(0, rows))
    strength = beta.index_select(0, rows).unsqueeze(-1)
    results = torch.empty_like(values)
    start = 0
    for count in active:
        now = slice(start, start + count)
        _advance(state[:count], queries[now], keys[now], values[now], decay[now], strength[now], results[now])
        start += count
    out.index_copy_(0, rows, results.to(out.dtype))
    states.index_copy_(0, ids, state)
    return out


def _states_before(states: Tensor, ids: Tensor, num_computed: Tensor) -> Tensor:
    """Copies of the states of some requests; zero for those that start, whatever their slot holds."""
    before = states.index_select(0, ids)
    for index, done in enumerate(num_computed.tolist()):
        if done == 0:
            before[index].zero_()
    return before


def _advance(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, result: Tensor
) -> None:
    """One token of each request: [A, HV, dk, dv] state in place, [A, HV, dv] result."""
    if (
        state.shape[0] * state.shape[1] == 1
    ):  # a batch of one product is added up in another order than one of more
        twins = [torch.cat((own, own)) for own in (state, q, k, v, decay, strength, result)]
        _advance(*twins)
        state.copy_(twins[0][:1])
        result.copy_(twins[-1][:1])
        return
    num_key_dims, num_value_dims = state.shape[2:]
    flat = state.view(-1, num_key_dims, num_value_dims)
    flat.mul_(decay.reshape(-1, 1, 1))
    recalled = torch.bmm(k.view(-1, 1, num_key_dims), flat)
    correction = (v.view(-1, 1, num_value_dims) - recalled) * strength.view(-1, 1, 1)
    flat.baddbmm_(k.view(-1, num_key_dims, 1), correction)
    torch.bmm(q.view(-1, 1, num_key_dims), flat, out=result.view(-1, 1, num_value_dims))


def _active_per_time(lens: Sequence[int]) -> list[int]:
    """How many requests (longest first) have a token at each time of the step."""
    active = []
    count = len(lens)
    for time in range(lens[0]):
        while lens[count - 1] <= time:
            count -= 1
        active.append(count)
    return active


def _time_major_rows(first_rows: Tensor, active: Sequence[int]) -> Tensor:
    """Row numbers ordered by time, then by request, so that one time's tokens are one slice."""
    if len(active) == 1:
        return first_rows.long()
    starts = first_rows.tolist()
    return torch.tensor(
        [starts[r] + time for time, count in enumerate(active) for r in range(count)],
        device=first_rows.device,
    )


def _unit(x: Tensor, repeats: int) -> Tensor:
    """Heads scaled to length one (eps inside the root, on the sum), each repeated for its value heads."""
    wide = x.float()
    unit = wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6)
    return unit.repeat_interleave(repeats, dim=1) if repeats > 1 else unit
