from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.kernels.reference.candidates import order_best
from qanat.worker import logprobs
from qanat.worker.logprobs import token_logprobs

halves = st.integers(-6, 6).map(lambda n: n / 2)


@settings(deadline=None)
@given(st.lists(st.lists(halves, min_size=9, max_size=9), min_size=1, max_size=4), st.integers(1, 9))
def test_order_is_by_value_then_by_id(rows: list[list[float]], num_best: int) -> None:
    values, ids = order_best(torch.tensor(rows), num_best)
    for row, row_values, row_ids in zip(rows, values.tolist(), ids.tolist(), strict=True):
        expected = sorted(range(9), key=lambda i: (-row[i], i))[:num_best]
        assert row_ids == expected
        assert row_values == [row[i] for i in expected]


@settings(deadline=None)
@given(st.lists(st.lists(halves, min_size=9, max_size=9), min_size=1, max_size=4), st.data())
def test_entries_are_log_softmax_with_rank_and_alternatives(
    rows: list[list[float]], data: st.DataObject
) -> None:
    chosen = [data.draw(st.integers(0, 8)) for _ in rows]
    num_top = [data.draw(st.integers(0, 12)) for _ in rows]
    logits = torch.tensor(rows)
    expected = torch.log_softmax(logits, dim=1).tolist()
    for i, entry in enumerate(token_logprobs(logits, chosen, num_top)):
        order = sorted(range(9), key=lambda t, i=i: (-rows[i][t], t))
        assert entry.token_ids == [chosen[i], *order[: num_top[i]]]
        assert entry.logprobs == [expected[i][token] for token in entry.token_ids]
        assert entry.rank == order.index(chosen[i]) + 1


def test_logits_stay_as_they_are_and_parts_join(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(11, 100, generator=torch.Generator().manual_seed(1))
    kept = logits.clone()
    whole = token_logprobs(logits, list(range(11)), [3] * 11)
    monkeypatch.setattr(logprobs, "MAX_SAMPLER_ELEMENTS", 250)
    assert token_logprobs(logits, list(range(11)), [3] * 11) == whole
    assert torch.equal(logits, kept)
