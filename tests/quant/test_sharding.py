"""What each rank keeps of a tensor: together everything, each row as often as it must be, in the right order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qanat.platforms.groups import PlannedGroup
from qanat.quant.parameter import ParameterFactory, ParameterInfo


def kept(whole: Tensor, info: ParameterInfo, rank: int, size: int) -> Tensor:
    shard = info.sharded(tuple(whole.shape), rank, size).shard
    return whole if shard is None else shard.of(whole)


def test_one_rank_and_parameters_without_an_axis_keep_all() -> None:
    assert ParameterInfo(0).sharded((4, 2), 0, 1).shard is None
    assert ParameterInfo().sharded((4, 2), 1, 2).shard is None
    assert ParameterInfo().sharded((4, 2), 1, 2).own_shape == (4, 2)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_or_columns_are_split_into_equal_runs(axis: int, size: int) -> None:
    whole = torch.arange(64).view(8, 8)
    parts = [kept(whole, ParameterInfo(axis), rank, size) for rank in range(size)]
    assert torch.equal(torch.cat(parts, axis), whole)
    assert len({part.shape for part in parts}) == 1


def test_eng_015_sections_are_split_each_on_their_own() -> None:
    """Queries, keys and values of the delta net: two heads of 2, 2 and 3 rows each."""
    info = ParameterInfo(0, (4, 4, 6), (2, 2, 2))
    whole = torch.arange(14)
    assert kept(whole, info, 0, 2).tolist() == [0, 1, 4, 5, 8, 9, 10]
    assert kept(whole, info, 1, 2).tolist() == [2, 3, 6, 7, 11, 12, 13]


def test_heads_of_which_there_are_too_few_are_held_by_several_ranks() -> None:
    info = ParameterInfo(0, num_units=(2,))
    assert [kept(torch.arange(4), info, rank, 4).tolist() for rank in range(4)] == [
        [0, 1],
        [0, 1],
        [2, 3],
        [2, 3],
    ]


def test_heads_are_never_cut() -> None:
    with pytest.raises(ValueError, match="3 parts cannot be split over 2 ranks"):
        ParameterInfo(0, num_units=(3,)).sharded((6,), 0, 2)


def test_one_section_of_one_entry_of_a_stack() -> None:
    """Gate and up of an expert come one by one; the rank keeps its rows of each."""
    info = ParameterInfo(1, (4, 4)).sharded((3, 8, 2), 1, 2)
    assert info.own_shape == (3, 4, 2) and info.shard is not None
    gate, up = torch.arange(8).view(4, 2), torch.arange(8, 16).view(4, 2)
    whole = torch.cat([gate, up])[None]
    ours = torch.cat([info.shard.of_section(i).of(part) for i, part in enumerate((gate, up))])
    assert torch.equal(ours, info.shard.of(whole)[0])


def test_a_factory_makes_one_ranks_share() -> None:
    factory = ParameterFactory(torch.float32, torch.device("meta"), PlannedGroup(1, 4))
    parameter = factory.make((8, 3), ParameterInfo(0))
    assert parameter.shape == (2, 3)
    assert parameter.info.whole_shape == (8, 3)
