from __future__ import annotations

from pathlib import Path

import pytest

from qanat.config.graphs import GraphSettings
from qanat.config.profiler import ProfilerSettings
from tests.support.rank_threads import on_ranks
from tests.worker.test_tensor_parallel import config_of, generate

GRAPHS = GraphSettings("FULL_DECODE_ONLY", (1, 2, 4))


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5_moe"])
def test_two_ranks_exchange_between_the_parts_of_a_graph(family: str) -> None:
    eager, graphs = (
        on_ranks(2, lambda group, graphs=graphs: generate(config_of(family, 2, graphs=graphs), group))[0]  # type: ignore[misc]
        for graphs in (GraphSettings(), GRAPHS)
    )
    assert graphs == eager


def test_a_profile_on_one_rank_changes_no_exchange(tmp_path: Path) -> None:
    """Ranks begin a profile at steps of their own: a padded step of one must meet a padded step of the other."""
    profiler = ProfilerSettings(str(tmp_path), kinds=("ops",))
    config = config_of("qwen3", 2, graphs=GRAPHS, profiler=profiler)
    plain, profiled = (
        on_ranks(2, lambda group, rank=rank: generate(config, group, group.rank == rank))[0]  # type: ignore[misc]
        for rank in (None, 1)
    )
    assert profiled == plain
