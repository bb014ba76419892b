from __future__ import annotations

import pytest

from qanat.config.graphs import GraphSettings
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
