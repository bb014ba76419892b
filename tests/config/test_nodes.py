from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qanat.config.engine_config import EngineConfig
from qanat.config.env import CLUSTER_KEY_VARIABLE
from qanat.config.nodes import check_nodes
from qanat.config.parallel import tensor_parallel_size
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from tests.config.tiny_folder import TWO_CORES
from tests.worker.tiny_model import tiny_config


def settled(**wishes: Any) -> tuple[int, list[Decision]]:
    said: list[Decision] = []
    size = tensor_parallel_size(EngineConfig(**wishes), tiny_config().model, TWO_CORES, said)
    return size, said


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"node_rank": 1}, "--node-rank 1 needs --nnodes of at least 2"),
        ({"nnodes": 2, "node_rank": 2, "tensor_parallel_size": 2}, "--nnodes of at least 3"),
        ({"nnodes": 2, "data_parallel_size": 2, "tensor_parallel_size": 2}, "--data-parallel-address"),
        ({"nnodes": 2, "headless": True, "tensor_parallel_size": 2}, "Host 0 of --nnodes 2 serves"),
        ({"nnodes": 2, "tensor_parallel_size": 3}, "give a size that 2 divides"),
        ({"nnodes": 2}, "give a size that 2 divides"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_nodes(EngineConfig(**wishes))


def test_hosts_that_fit_are_taken() -> None:
    for rank in range(2):
        check_nodes(EngineConfig(nnodes=2, node_rank=rank, headless=rank == 1, tensor_parallel_size=4))
    check_nodes(EngineConfig())


def test_the_number_of_ranks_is_never_lowered_over_several_hosts() -> None:
    assert settled(nnodes=2, tensor_parallel_size=4) == (4, [])
    assert settled(tensor_parallel_size=4)[0] == 2
    fewer = dataclasses.replace(TWO_CORES, num_cores=1)
    with pytest.raises(ConfigError, match="is 2 ranks here, and this process may use 1 cores"):
        tensor_parallel_size(EngineConfig(nnodes=2, tensor_parallel_size=4), tiny_config().model, fewer, [])
    with pytest.raises(ConfigError, match="does not fit this model"):
        settled(nnodes=2, tensor_parallel_size=64)


def test_without_a_key_it_is_said_that_anybody_may_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLUSTER_KEY_VARIABLE, raising=False)
    wishes = {"nnodes": 2, "tensor_parallel_size": 2, "master_addr": "10.0.0.1"}
    (decision,) = settled(**wishes)[1]
    assert decision.field == CLUSTER_KEY_VARIABLE and "10.0.0.1 may join" in decision.why
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, "k" * 16)
    assert settled(**wishes)[1] == []
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, "short")
    with pytest.raises(ConfigError, match="shorter than 16"):
        settled(**wishes)
