from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from qanat.kernels.reference import delta

KEY_HEADS, VALUE_HEADS, DK, DV = 2, 6, 8, 4
CHANNELS, TAPS = 10, 4


def conv_exact(past: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    window = torch.cat((past, x)).double()
    out = torch.zeros(len(x), x.shape[1], dtype=torch.float64)
    for row in range(len(x)):
        for tap in range(TAPS):
            out[row] += weight[:, tap].double() * window[row + tap]
    return out / (1 + (-out).exp())


def rule_exact(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """One sequence, token by token and head by head, in fp64."""
    state, out = state.double().clone(), torch.zeros(v.shape, dtype=torch.float64)
    for t in range(len(v)):
        for head in range(VALUE_HEADS):
            own = head // (VALUE_HEADS // KEY_HEADS)
            key, query = k[t, own].double(), q[t, own].double()
            key = key / math.sqrt(key.pow(2).sum() + 1e-6)
            query = query / math.sqrt(query.pow(2).sum() + 1e-6) / math.sqrt(DK)
            state[head] *= math.exp(log_decay[t, head])
            change = beta[t, head].double() * (v[t, head].double() - key @ state[head])
            state[head] += torch.outer(key, change)
            out[t, head] = query @ state[head]
    return out, state


def ids(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def starts(query_lens: Sequence[int]) -> Tensor:
    return torch.tensor([0, *query_lens]).cumsum(0).int()


def inputs(num_rows: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, num_rows, KEY_HEADS, DK, generator=g).unbind(0)
    v = torch.randn(num_rows, VALUE_HEADS, DV, generator=g)
    log_decay = -torch.rand(num_rows, VALUE_HEADS, generator=g)
    return q, k, v, log_decay, torch.rand(num_rows, VALUE_HEADS, generator=g)


class TestConv:
    def run(
        self, x: Tensor, weight: Tensor, states: Tensor, place: list[int], done: list[int], lens: list[int]
    ):
        return delta.causal_conv(x, weight, states, ids(place), ids(done), lens)

    @pytest.mark.parametrize("lens", [[1], [2], [3], [9], [1, 1, 1], [4, 1, 2, 7]])
    def test_ragged_batches(self, lens: list[int]) -> None:
        x, weight = torch.randn(sum(lens), CHANNELS), torch.randn(CHANNELS, TAPS)
        states = torch.randn(8, TAPS - 1, CHANNELS)
        before, place = states.clone(), [5, 2, 7, 1][: len(lens)]
        out = self.run(x, weight, states, place, [3] * len(lens), lens)
        for own, rows, result in zip(place, x.split(lens), out.split(lens), strict=True):
            expected = conv_exact(before[own], rows, weight)
            torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
            assert torch.equal(states[own], torch.cat((before[own], rows))[-3:])
        untouched = [i for i in range(8) if i not in place]
        assert torch.equal(states[untouched], before[untouched])

    def test_a_fresh_request_starts_from_zero_whatever_the_slot_holds(self) -> None:
        x, weight = torch.randn(2, CHANNELS), torch.randn(CHANNELS, TAPS)
        states = torch.full((2, TAPS - 1, CHANNELS), torch.nan)
        out = self.run(x, weight, states, [1], [0], [2])
        expected = conv_exact(torch.zeros(3, CHANNELS), x, weight)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(states[1], torch.cat((torch.zeros(1, CHANNELS), x)))
        assert states[0].isnan().all()

    def test_requests_without_rows_and_padding_rows(self) -> None:
        x, weight = torch.randn(5, CHANNELS), torch.randn(CHANNELS, TAPS)
        x[3:] = torch.nan
        states = torch.randn(4, TAPS - 1, CHANNELS)
        before = states.clone()
        out = self.run(x, weight, states, [1, 2, 0], [0, 9, 0], [0, 3, 0])
        assert torch.equal(out[3:], torch.zeros(2, CHANNELS))
        torch.testing.assert_close(
            out[:3].double(), conv_exact(before[2], x[:3], weight), rtol=1e-5, atol=1e-5
        )
        assert torch.equal(states[[0, 1, 3]], before[[0, 1, 3]])
        assert torch.equal(self.run(x, weight, states, [1], [0], [0]), torch.zeros_like(x))

    def test_inputs_take_the_states_type_before_their_first_use(self) -> None:
        x, weight = torch.randn(4, CHANNELS), torch.randn(CHANNELS, TAPS)
        narrow = torch.zeros(2, TAPS - 1, CHANNELS, dtype=torch.bfloat16)
        out = self.run(x, weight, narrow, [1], [0], [4])
        wide = torch.zeros(2, TAPS - 1, CHANNELS)
        assert torch.equal(out, self.run(x.bfloat16().float(), weight, wide, [1], [0], [4]))


def test_gates() -> None:
    a, b = torch.randn(7, VALUE_HEADS) * 8, torch.randn(7, VALUE_HEADS) * 4
    a_log, dt_bias = torch.randn(VALUE_HEADS), torch.randn(VALUE_HEADS)
    log_decay, beta = delta.delta_gates(a, b, a_log, dt_bias)
    step = (a + dt_bias).double()
    expected = -a_log.double().exp() * (1 + step.exp()).log()
    torch.testing.assert_close(log_decay.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(beta.double(), 1 / (1 + (-b.double()).exp()), rtol=1e-5, atol=1e-6)
    assert (log_decay <= 0).all()
    log_decay, beta = delta.delta_gates(a.bfloat16(), b.bfloat16(), a_log, dt_bias.bfloat16())
    assert log_decay.dtype == beta.dtype == torch.float32


class TestRule:
    def run(
        self, rows: tuple[Tensor, ...], states: Tensor, place: list[int], done: list[int], lens: list[int]
    ) -> Tensor:
        q, k, v, log_decay, beta = rows
        return delta.gated_delta_rule(
            q, k, v, log_decay, beta, states, ids(place), ids(done), starts(lens), lens
        )

    @pytest.mark.parametrize("lens", [[1], [6], [1, 1, 1], [2, 9, 1, 5]])
    def test_ragged_batches(self, lens: list[int]) -> None:
        rows = inputs(sum(lens))
        states = torch.randn(8, VALUE_HEADS, DK, DV)
        before, place = states.clone(), [5, 2, 7, 1][: len(lens)]
        out = self.run(rows, states, place, [4] * len(lens), lens)
        first = 0
        for own, length in zip(place, lens, strict=True):
            part = tuple(tensor[first : first + length] for tensor in rows)
            expected, state = rule_exact(before[own], *part)
            torch.testing.assert_close(out[first : first + length].double(), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(states[own].double(), state, rtol=1e-5, atol=1e-5)
            first += length
        untouched = [i for i in range(8) if i not in place]
        assert torch.equal(states[untouched], before[untouched])

    def test_a_fresh_request_starts_from_zero_whatever_the_slot_holds(self) -> None:
        rows, states = inputs(5), torch.full((2, VALUE_HEADS, DK, DV), torch.nan)
        out = self.run(rows, states, [1], [0], [5])
        expected, state = rule_exact(torch.zeros(VALUE_HEADS, DK, DV), *rows)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(states[1].double(), state, rtol=1e-5, atol=1e-5)

    def test_one_step_of_many_tokens_equals_many_steps_of_one(self) -> None:
        """Rule R3: prefill and decode are the same recurrence."""
        rows, whole, stepped = (
            inputs(40),
            *torch.randn(2, VALUE_HEADS, DK, DV).expand(2, -1, -1, -1, -1).clone(),
        )
        out = self.run(rows, whole, [1], [9], [40])
        for t in range(40):
            part = tuple(tensor[t : t + 1] for tensor in rows)
            torch.testing.assert_close(
                self.run(part, stepped, [1], [9], [1])[0], out[t], rtol=1e-5, atol=1e-6
            )
        torch.testing.assert_close(stepped, whole, rtol=1e-5, atol=1e-6)

    def test_rows_without_decay_and_write_leave_the_state_bit_equal(self) -> None:
        q, k, v, log_decay, beta = inputs(6)
        states = torch.randn(2, VALUE_HEADS, DK, DV)
        before = states.clone()
        self.run((q, k, v, torch.zeros_like(log_decay), torch.zeros_like(beta)), states, [1], [3], [6])
        assert torch.equal(states, before)

    def test_requests_without_rows_and_padding_rows(self) -> None:
        rows = tuple(torch.cat((part, torch.full((3, *part.shape[1:]), torch.nan))) for part in inputs(4))
        states = torch.randn(4, VALUE_HEADS, DK, DV)
        before = states.clone()
        out = self.run(rows, states, [1, 2, 0], [0, 9, 0], [0, 4, 0])
        assert torch.equal(out[4:], torch.zeros(3, VALUE_HEADS, DV))
        expected, _ = rule_exact(before[2], *inputs(4))
        torch.testing.assert_close(out[:4].double(), expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(states[[0, 1, 3]], before[[0, 1, 3]])
        assert not self.run(rows, states, [1], [0], [0]).any()

    def test_bf16_inputs_keep_an_fp32_state(self) -> None:
        q, k, v, log_decay, beta = inputs(30)
        narrow = (q.bfloat16(), k.bfloat16(), v.bfloat16(), log_decay, beta)
        states = torch.zeros(2, VALUE_HEADS, DK, DV)
        out = self.run(narrow, states, [1], [0], [30])
        assert out.dtype == torch.bfloat16
        _, state = rule_exact(torch.zeros(VALUE_HEADS, DK, DV), *(part.float() for part in narrow))
        torch.testing.assert_close(states[1].double(), state, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("length", range(1, 201, 13))
    def test_guards_around_the_buffers(self, length: int) -> None:
        """Trial case ENG-012: no length writes outside its own rows and states."""
        rows, guard = inputs(length), 77.0
        buffer = torch.full((4, VALUE_HEADS, DK, DV), guard)
        states = buffer[1:3]
        self.run(rows, states, [1], [0], [length])
        assert (buffer[[0, 1, 3]] == guard).all()
        expected = rule_exact(torch.zeros(VALUE_HEADS, DK, DV), *rows)[1]
        torch.testing.assert_close(buffer[2].double(), expected, rtol=1e-4, atol=1e-5)
