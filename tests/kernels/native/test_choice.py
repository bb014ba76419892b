from __future__ import annotations

import pytest
import torch

from qanat.kernels.native import products
from qanat.kernels.native.module import configure, instruction_sets
from qanat.kernels.reference import mlp as reference


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize(
    ("num_scores", "num_valid"), [(1, 1), (17, 16), (4096, 4096), (9001, 8999), (9001, 40)]
)
def test_the_best_token_is_the_references(isa: str, num_scores: int, num_valid: int) -> None:
    configure(2, isa)
    scores = torch.randn(7, num_scores, generator=torch.Generator().manual_seed(num_scores)).round(decimals=1)
    scores[1, :] = -5.0
    scores[2, num_scores - 1] = torch.nan
    scores[3, 0] = -torch.inf
    scores[4, num_scores // 2] = torch.inf
    best, are_finite = products.best_tokens(scores, num_valid)
    expected_best, expected_finite = reference.best_tokens(scores, num_valid)
    assert torch.equal(are_finite, expected_finite)
    assert are_finite.tolist() == [row not in (2, 3, 4) for row in range(7)]
    keep = are_finite.nonzero().flatten()
    assert torch.equal(best[keep], expected_best[keep])
    part = scores[:, :num_valid]
    assert torch.equal(products.best_tokens(part, num_valid)[0][keep], expected_best[keep])
