from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qanat.platforms.cpu import CpuPlatform
from qanat.platforms.groups import ParallelGroup, PlannedGroup, SingleGroup
from tests.support.rank_threads import on_ranks


def test_one_rank_exchanges_nothing_and_copies_nothing() -> None:
    x, group = torch.randn(2, 3), SingleGroup()
    assert group.all_reduce(x) is group.all_gather(x) is group.broadcast(x) is x


def test_a_planned_group_has_a_place_and_no_ranks() -> None:
    group = PlannedGroup(1, 4)
    assert (group.rank, group.size) == (1, 4)
    for call in (group.all_reduce, group.all_gather, group.broadcast):
        with pytest.raises(RuntimeError, match="planned"):
            call(torch.zeros(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_sum_is_added_in_order_of_rank_and_rounded_once(dtype: torch.dtype) -> None:
    """1 + 2^-9 + 2^-9 is 1 + 2^-8 in bf16 only if the middle is not rounded; a strided input is taken as well."""
    values = [1.0, 2.0**-9, 2.0**-9, 3.0]
    parts = [torch.full((4, 3), value, dtype=dtype).t() for value in values]

    def add(group: ParallelGroup) -> Tensor:
        with torch.inference_mode():
            return group.all_reduce(parts[group.rank])

    wanted = (((parts[0].float() + parts[1].float()) + parts[2].float()) + parts[3].float()).to(dtype)
    for result in on_ranks(4, add):
        assert result.dtype == dtype and torch.equal(result, wanted)


def test_gathering_joins_the_last_axis_in_order_and_broadcasting_gives_rank_0s_values() -> None:
    def exchange(group: ParallelGroup) -> tuple[Tensor, Tensor]:
        own = torch.arange(4).view(2, 2) + 10 * group.rank
        return group.all_gather(own), group.broadcast(own)

    for gathered, sent in on_ranks(2, exchange):
        assert gathered.tolist() == [[0, 1, 10, 11], [2, 3, 12, 13]]
        assert sent.tolist() == [[0, 1], [2, 3]]


def test_meetings_have_ports_of_their_own_on_the_loopback_interface() -> None:
    first, second = (CpuPlatform().meeting(None, 5.0) for _ in range(2))
    assert first.port != second.port and first.address == "127.0.0.1"


def test_a_rank_that_nobody_joins_gives_up() -> None:
    meeting = CpuPlatform().meeting(None, 0.5)
    with pytest.raises(RuntimeError):
        meeting.join(0, 2, 0.5)
