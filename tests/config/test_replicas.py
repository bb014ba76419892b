from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.config.engine_config import EngineConfig
from qanat.config.machine import MachineInfo
from qanat.config.model_config import ModelConfig
from qanat.config.parallel_settings import ParallelSettings
from qanat.config.replicas import CORE_PROCESS_BYTES, parallel_settings, replica_bytes
from qanat.config.resolve import resolve
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from tests.config.tiny_folder import NO_VARIABLES, TINY_CONFIG, TWO_CORES

MODEL = ModelConfig.from_dict({**TINY_CONFIG, "hidden_size": 1024})


def cores(count: int) -> MachineInfo:
    return dataclasses.replace(TWO_CORES, num_cores=count)


def settle(
    num_cores: int = 8, num_ranks: int = 1, **wishes: Any
) -> tuple[ParallelSettings, dict[str, Decision]]:
    said: list[Decision] = []
    settings = parallel_settings(EngineConfig(**wishes), cores(num_cores), num_ranks, said)
    return settings, {decision.field: decision for decision in said}


@pytest.mark.parametrize(
    ("wishes", "size", "local", "served"),
    [
        ({}, 1, [0], [0]),
        ({"data_parallel_size": 4}, 4, [0, 1, 2, 3], [0, 1, 2, 3]),
        ({"data_parallel_size": 4, "data_parallel_size_local": 2}, 4, [0, 1], [0, 1, 2, 3]),
        ({"data_parallel_size": 2, "data_parallel_size_local": 0}, 2, [], [0, 1]),
        (
            {
                "data_parallel_size": 4,
                "data_parallel_size_local": 2,
                "data_parallel_start_rank": 2,
                "headless": True,
            },
            4,
            [2, 3],
            [],
        ),
        ({"data_parallel_size": 4, "data_parallel_start_rank": 3, "headless": True}, 4, [3], []),
        ({"data_parallel_size": 4, "data_parallel_rank": 3}, 4, [3], [3]),
        (
            {"data_parallel_size": 4, "data_parallel_rank": 0, "data_parallel_external_lb": True},
            4,
            [0],
            [0],
        ),
        (
            {
                "data_parallel_size": 4,
                "data_parallel_size_local": 2,
                "data_parallel_start_rank": 2,
                "data_parallel_hybrid_lb": True,
            },
            4,
            [2, 3],
            [2, 3],
        ),
        ({"data_parallel_size": 1, "data_parallel_rank": 0}, 1, [0], [0]),
    ],
)
def test_who_runs_and_who_serves_which_replica(
    wishes: dict[str, Any], size: int, local: list[int], served: list[int]
) -> None:
    settings, decisions = settle(**wishes)
    assert (settings.data_parallel_size, list(settings.local_ranks), list(settings.served_ranks)) == (
        size,
        local,
        served,
    )
    assert settings.has_remote_replicas == (len(served) > len(local))
    assert decisions == {}


@pytest.mark.parametrize(
    ("wishes", "flag", "part"),
    [
        ({"data_parallel_external_lb": True}, "--data-parallel-external-lb", "needs --data-parallel-rank"),
        (
            {"data_parallel_hybrid_lb": True, "data_parallel_rank": 1},
            "--data-parallel-rank",
            "leave one of them out",
        ),
        ({"data_parallel_hybrid_lb": True}, "--data-parallel-hybrid-lb", "needs --data-parallel-size-local"),
        ({"data_parallel_size": 2, "data_parallel_rank": 2}, "--data-parallel-rank", "last replica is 1"),
        (
            {"data_parallel_size": 4, "data_parallel_rank": 2, "data_parallel_size_local": 2},
            "--data-parallel-size-local",
            "leave --data-parallel-size-local out",
        ),
        (
            {"data_parallel_size": 4, "data_parallel_rank": 2, "data_parallel_start_rank": 1},
            "--data-parallel-start-rank",
            "leave --data-parallel-start-rank out",
        ),
        (
            {"headless": True, "data_parallel_size": 2, "data_parallel_rank": 1},
            "--data-parallel-rank",
            "headless",
        ),
        (
            {"data_parallel_size": 4, "data_parallel_size_local": 2, "data_parallel_start_rank": 3},
            "--data-parallel-size",
            "go beyond it",
        ),
        ({"data_parallel_size_local": 2}, "--data-parallel-size", "go beyond it"),
        ({"data_parallel_size_local": 0, "headless": True}, "--data-parallel-size-local", "nothing to do"),
        (
            {"data_parallel_size": 4, "data_parallel_size_local": 3, "num_cores": 2},
            "--data-parallel-size-local",
            "this host has 2",
        ),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(wishes: dict[str, Any], flag: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(**wishes)
    assert caught.value.param == flag
    assert part in caught.value.message


@pytest.mark.parametrize(
    ("wishes", "flag", "got", "part"),
    [
        ({"data_parallel_size": 9, "num_cores": 8}, "--data-parallel-size", 8, "may use 8 cores"),
        ({"data_parallel_size": 8, "num_cores": 8, "num_ranks": 4}, "--data-parallel-size", 2, "has 4 ranks"),
        ({"data_parallel_size": 2, "num_cores": 1}, "--data-parallel-size", 1, "may use 1 cores"),
        ({"data_parallel_backend": "ray"}, "--data-parallel-backend", "mp", "processes of their own"),
        ({"data_parallel_address": "10.0.0.1"}, "--data-parallel-address", "no effect", "no replica"),
        ({"data_parallel_rpc_port": 5000}, "--data-parallel-rpc-port", "no effect", "no replica"),
        (
            {"data_parallel_size": 2, "data_parallel_start_rank": 1},
            "--data-parallel-hybrid-lb",
            True,
            "first replica is not 0",
        ),
    ],
)
def test_what_comes_out_otherwise_is_a_decision(
    wishes: dict[str, Any], flag: str, got: object, part: str
) -> None:
    _, decisions = settle(**wishes)
    assert decisions[flag].got == got
    assert part in decisions[flag].why


def test_replicas_of_a_host_share_its_cores_and_memory() -> None:
    config, decisions = resolve(
        EngineConfig(data_parallel_size=2), MODEL, cores(4), NO_VARIABLES, model_path="/m"
    )
    assert config.num_threads == 2
    assert config.cache.available_bytes == TWO_CORES.available_bytes // 2 - CORE_PROCESS_BYTES
    assert any("shared by 2 replicas" in decision.why for decision in decisions)


def test_one_replica_looks_at_the_memory_when_it_starts() -> None:
    config, _ = resolve(EngineConfig(), MODEL, cores(4), NO_VARIABLES, model_path="/m")
    assert config.cache.available_bytes is None


@given(st.integers(0, 2**45), st.integers(1, 64))
def test_shares_of_the_memory_are_never_more_than_there_is(available_bytes: int, num_replicas: int) -> None:
    share = replica_bytes(available_bytes, num_replicas)
    assert share >= 0
    assert share * num_replicas <= available_bytes


@given(
    size=st.integers(1, 8),
    local=st.none() | st.integers(0, 8),
    start=st.none() | st.integers(0, 8),
    is_headless=st.booleans(),
    num_cores=st.integers(1, 8),
    num_ranks=st.integers(1, 3),
)
def test_what_is_accepted_fits_together(
    size: int, local: int | None, start: int | None, is_headless: bool, num_cores: int, num_ranks: int
) -> None:
    try:
        settings, _ = settle(
            num_cores,
            num_ranks,
            data_parallel_size=size,
            data_parallel_size_local=local,
            data_parallel_start_rank=start,
            headless=is_headless,
        )
    except ConfigError as error:
        assert error.param is not None and error.param.startswith("--data-parallel")
        return
    ranks = range(settings.data_parallel_size)
    assert set(settings.local_ranks) <= set(ranks)
    assert set(settings.served_ranks) <= set(ranks)
    assert settings.served_ranks or is_headless
    assert settings.num_local_replicas * num_ranks <= max(num_cores, num_ranks)
    if not is_headless:
        assert set(settings.local_ranks) <= set(settings.served_ranks)
