from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
import torch
from torch import Tensor

from qanat.platforms.gloo import GlooGroup
from qanat.platforms.groups import (
    CollectiveError,
    ConnectedGroup,
    ParallelGroup,
    Place,
    PlannedGroup,
    SingleGroup,
)
from qanat.platforms.metered import MeteredGroup
from qanat.platforms.notes import Notes
from tests.support.rank_threads import joined, on_ranks


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
def test_a_sum_is_added_by_a_tree_and_rounded_once(dtype: torch.dtype) -> None:
    """2^24 takes up neither 1 by itself, but both together; a strided input is taken as well."""
    values = [2.0**24, 1.0, 1.0, 1.0, 3.0] if dtype != torch.float16 else [1.0, 2.0**-11, 2.0**-11, 3.0, 4.0]
    parts = [torch.full((4, 3), value, dtype=dtype).t() for value in values]

    def add(group: ParallelGroup) -> Tensor:
        with torch.inference_mode():
            return group.all_reduce(parts[group.rank])

    p = [part.float() for part in parts]
    wanted = (((p[0] + p[1]) + (p[2] + p[3])) + p[4]).to(dtype)
    for result in on_ranks(5, add):
        assert result.dtype == dtype and torch.equal(result, wanted)


def test_gathering_joins_the_last_axis_in_order_and_broadcasting_gives_rank_0s_values() -> None:
    def exchange(group: ParallelGroup) -> tuple[Tensor, Tensor]:
        own = torch.arange(4).view(2, 2) + 10 * group.rank
        return group.all_gather(own), group.broadcast(own)

    for gathered, sent in on_ranks(2, exchange):
        assert gathered.tolist() == [[0, 1, 10, 11], [2, 3, 12, 13]]
        assert sent.tolist() == [[0, 1], [2, 3]]


def test_a_rank_that_nobody_joins_gives_up() -> None:
    with pytest.raises(RuntimeError, match="no rank said"):
        joined(0, 2, Notes(lambda key, value: None), timeout_s=0.5)


class Impostor(GlooGroup):
    """Knows the port and the number that gloo asks for, but not the secret; says what a rank might say, and stays."""

    has_been_heard = threading.Event()

    def _prove(self, secret: bytes) -> None:
        self._group.send([torch.zeros(32, dtype=torch.uint8)], 0, 0).wait()
        assert self.has_been_heard.wait(60)


def test_a_stranger_that_takes_a_ranks_place_is_noticed_before_anything_is_said() -> None:
    notes = Notes(lambda key, value: None)
    with ThreadPoolExecutor(1) as pool:
        stranger = pool.submit(Impostor, Place(1, 2, "127.0.0.1", b"", 60.0, 60.0), notes)
        try:
            with pytest.raises(
                RuntimeError, match="whoever connected as rank 1 does not know the group's secret"
            ):
                joined(0, 2, notes)
        finally:
            Impostor.has_been_heard.set()
            stranger.result()


def test_a_rank_that_waits_for_another_one_gives_up_when_the_group_is_abandoned() -> None:
    is_asked = threading.Event()

    def run(group: ParallelGroup) -> str:
        connected = cast(ConnectedGroup, group)
        if group.rank == 1:
            assert is_asked.wait(30)
            return ""
        threading.Timer(0.1, connected.abandon).start()
        try:
            group.all_reduce(torch.zeros(2))
        except CollectiveError as error:
            return str(error)
        finally:
            is_asked.set()
        return "summed"

    assert on_ranks(2, run)[0] == "the group was abandoned"


def test_a_metered_group_counts_its_exchanges_and_their_time() -> None:
    def run(group: ParallelGroup) -> MeteredGroup:
        metered = MeteredGroup(cast(ConnectedGroup, group))
        for call in (metered.all_reduce, metered.all_gather, metered.broadcast):
            call(torch.zeros(2))
        return metered

    for metered in on_ranks(2, run):
        assert metered.num_entered == 3 and metered.spent_s > 0.0
