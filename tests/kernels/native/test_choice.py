"""Tokens that the native kernel chooses are the reference's, on every instruction set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from qanat.kernels.draws import Draws, as_bytes, make_draw
from qanat.kernels.native import products
from qanat.kernels.native.module import configure, instruction_sets
from qanat.kernels.reference import choice as reference
from qanat.kernels.reference.choice import NO_TOKEN

SIZES = [(1, 1), (17, 16), (64, 64), (4096, 4096), (9001, 8999), (9001, 40)]


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize(("num_scores", "num_valid"), SIZES)
def test_the_best_token_is_the_references(isa: str, num_scores: int, num_valid: int) -> None:
    configure(2, isa)
    scores = torch.randn(7, num_scores, generator=torch.Generator().manual_seed(num_scores)).round(decimals=1)
    scores[1, :] = -5.0
    scores[2, num_scores - 1] = torch.nan
    scores[3, 0] = -torch.inf
    scores[4, num_scores // 2] = torch.inf
    scores[5] = -torch.inf
    found = products.choose_tokens(scores, num_valid)
    expected = reference.choose_tokens(scores, num_valid, None)
    assert found[1].tolist() == expected[1].tolist() == [int(row not in (2, 3, 4, 5)) for row in range(7)]
    keep = torch.tensor([0, 1, 3, 5, 6])
    assert torch.equal(found[0][keep], expected[0][keep]) and found[0, 5] == NO_TOKEN
    part = scores[:, :num_valid]
    assert torch.equal(products.choose_tokens(part, num_valid)[0][keep], expected[0][keep])


def some_scores(chance: np.random.Generator, num_rows: int, num_scores: int) -> Tensor:
    """Sharp or flat, with ties or without, sometimes with most tokens masked."""
    scores = chance.standard_normal((num_rows, num_scores)) * chance.choice([0.1, 1, 4, 20])
    if chance.random() < 0.4:
        scores = np.round(scores * 2) / 2
    if chance.random() < 0.3:
        scores[chance.random(scores.shape) < 0.6] = -np.inf
    return torch.from_numpy(scores.astype(np.float32))


def some_draws(chance: np.random.Generator, num_rows: int, num_valid: int) -> Draws:
    draws = [
        make_draw(
            key=int(chance.integers(0, 2**63)),
            temperature=float(chance.choice([0, 0.3, 0.7, 1, 1.7])),
            top_k=int(chance.choice([0, 0, 1, 3, 40, 500, 20000])),
            top_p=float(chance.choice([1, 1, 0.95, 0.5, 0.1, 0.999, 1 - 1e-9])),
            min_p=float(chance.choice([0, 0, 0.05, 0.5, 1])),
        )
        for _ in range(num_rows)
    ]
    found = np.concatenate(draws)
    found["top_k"][found["top_k"] >= num_valid] = 0
    return found


@pytest.mark.parametrize("seed", range(12))
def test_draws_are_the_references(seed: int) -> None:
    chance = np.random.default_rng(seed)
    for num_scores, num_valid in [*SIZES, (30000, 29000)]:
        scores = some_scores(chance, 5, num_scores)
        draws = torch.from_numpy(as_bytes(some_draws(chance, 5, num_valid)))
        expected = reference.choose_tokens(scores, num_valid, draws)
        for isa in instruction_sets():
            for num_threads in (1, 2):
                configure(num_threads, isa)
                assert torch.equal(products.choose_tokens(scores, num_valid, draws), expected)
        for row in range(5):
            alone = products.choose_tokens(scores[row : row + 1], num_valid, draws[row : row + 1])
            assert torch.equal(alone[:, 0], expected[:, row])


def test_scores_that_are_no_numbers_harm_nobody_else() -> None:
    scores = some_scores(np.random.default_rng(1), 6, 5000).nan_to_num(neginf=0.0)
    records = [make_draw(7, 1.0), make_draw(7, 0.8, top_p=0.9), make_draw(7, 0.8, top_k=5)]
    draws = torch.from_numpy(as_bytes(np.concatenate(records * 2)))
    expected = products.choose_tokens(scores, 5000, draws)
    broken = scores.clone()
    broken[3:, 17], broken[3:, 18], broken[3:, 4999] = math.nan, math.inf, math.nan
    found = products.choose_tokens(broken, 5000, draws)
    assert torch.equal(found[:, :3], expected[:, :3]) and found[1, 3:].tolist() == [0, 0, 0]
    assert torch.all((found[0] >= NO_TOKEN) & (found[0] < 5000))
