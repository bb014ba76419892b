"""Ops that move rows and tokens as they are."""

from __future__ import annotations

import pytest
import torch

from qanat.kernels import ops
from qanat.kernels.native import module, products
from qanat.kernels.reference.choice import NO_TOKEN
from tests.kernels.native.paths import TYPES, same_bits

pytestmark = pytest.mark.skipif(not module.is_built(), reason=module.why_not())


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_stand_side_by_side(dtype: torch.dtype) -> None:
    left, wide, right = (torch.randn(3, size).to(dtype) for size in (4, 9, 1))
    parts = (left, wide[:, 2:7], right)
    assert same_bits(products.join_rows(parts), ops.join_rows.reference.function(parts))


def test_a_choice_without_a_token_is_read_as_the_first() -> None:
    choice = torch.tensor([[5, NO_TOKEN, 0], [1, 0, 1]])
    assert products.known_tokens(choice).tolist() == [5, 0, 0]
    assert ops.known_tokens.reference.function(choice).tolist() == [5, 0, 0]


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_go_to_their_places_and_padding_nowhere(dtype: torch.dtype) -> None:
    x, places = torch.randn(4, 6).to(dtype), torch.tensor([7, -1, 0, 3])
    tables = [torch.zeros(8, 6, dtype=dtype) for _ in range(2)]
    products.store_rows(x, places, tables[0])
    ops.store_rows.reference.function(x, places, tables[1])
    assert same_bits(*tables)
    assert same_bits(tables[0][[7, 0, 3]], x[[0, 2, 3]]) and not tables[0][[1, 2, 4, 5, 6]].any()


def test_a_place_beyond_the_table_is_refused() -> None:
    with pytest.raises(IndexError, match="beyond the end"):
        products.store_rows(torch.zeros(1, 2), torch.tensor([3]), torch.zeros(3, 2))
