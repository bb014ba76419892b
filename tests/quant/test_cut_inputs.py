"""Shards of the inputs of a quantised matrix: together the whole, with the whole's segments."""

from __future__ import annotations

import pytest
import torch

from qanat.quant.cut_inputs import cut_inputs
from qanat.quant.parameter import ParameterInfo, Shard
from qanat.quant.rounding import quantise_int4, quantise_int8


def shards(num_inputs: int, size: int, axis: int = 1) -> list[Shard | None]:
    shape = (6, num_inputs) if axis == 1 else (2, 3, num_inputs)
    return [ParameterInfo(axis).sharded(shape, rank, size).shard for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("quantise", [quantise_int8, quantise_int4])
def test_parts_join_to_the_whole(quantise: object, size: int) -> None:
    whole = quantise(torch.randn(6, 192, generator=torch.Generator().manual_seed(1)))  # type: ignore[operator]
    parts = [cut_inputs(whole, shard) for shard in shards(192, size)]
    assert torch.equal(torch.cat([part.dequantised() for part in parts], 1), whole.dequantised())
    assert {part.inputs_per_segment for part in parts} == {whole.inputs_per_segment}
    assert all(part.values.is_contiguous() and part.scales.is_contiguous() for part in parts)


def test_a_cut_through_a_group_makes_smaller_groups() -> None:
    whole = quantise_int4(torch.randn(6, 96, generator=torch.Generator().manual_seed(1)))
    parts = [cut_inputs(whole, shard) for shard in shards(96, 2)]
    assert [(part.shape[1], part.group_size) for part in parts] == [(48, 16), (48, 16)]
    assert torch.equal(torch.cat([part.dequantised() for part in parts], 1), whole.dequantised())


def test_stacks_of_experts_are_cut_alike() -> None:
    whole = quantise_int4(torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(1)))
    parts = [cut_inputs(whole, shard) for shard in shards(64, 2, axis=2)]
    assert torch.equal(torch.cat([part.dequantised() for part in parts], 2), whole.dequantised())
