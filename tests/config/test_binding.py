"""What --cpu-binding comes to, on machines of several kinds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qanat.config.binding import bound_processors, without_binding
from qanat.config.engine_config import EngineConfig
from qanat.config.machine import MachineInfo
from qanat.config.model_config import ModelConfig
from qanat.config.resolve import resolve
from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from tests.config.tiny_folder import NO_VARIABLES, TINY_CONFIG, TWO_CORES

EIGHT = dataclasses.replace(TWO_CORES, num_cores=8, binding_order=(0, 2, 4, 6, 8, 10, 12, 14, 1, 3))


def settle(machine: MachineInfo = EIGHT, **wishes: Any) -> tuple[ResolvedConfig, dict[str, Decision]]:
    config, decisions = resolve(
        EngineConfig(**wishes), ModelConfig.from_dict(TINY_CONFIG), machine, NO_VARIABLES, model_path="/m"
    )
    return config, {decision.field: decision for decision in decisions}


def test_nothing_is_bound_unless_it_is_asked_for() -> None:
    config, decisions = settle()
    assert config.cpu_binding == () and "--cpu-binding" not in decisions
    config, _ = settle(cpu_binding=False, additional_config={"enable_cpu_binding": True})
    assert config.cpu_binding == ()


@pytest.mark.parametrize(
    "wishes", [{"cpu_binding": True}, {"additional_config": {"enable_cpu_binding": True}}]
)
def test_each_thread_gets_a_processor_and_the_server_the_rest(wishes: dict[str, Any]) -> None:
    config, decisions = settle(num_threads=4, **wishes)
    assert config.cpu_binding == (0, 2, 4, 6)
    assert decisions["--cpu-binding"].got == "processors 0,2,4,6"
    assert "own process has 1,3,8,10,12,14" in decisions["--cpu-binding"].why
    assert "--additional-config" not in decisions


def test_replicas_and_ranks_share_no_processor() -> None:
    config, _ = settle(num_threads=2, tensor_parallel_size=2, data_parallel_size=2, cpu_binding=True)
    given = [config.of_replica(replica).processors_of(rank) for replica in (0, 1) for rank in (0, 1)]
    assert given == [(0, 2), (4, 6), (8, 10), (12, 14)]
    assert config.of_replica(7).cpu_binding == ()  # of another host
    unbound, _ = settle(num_threads=2)
    assert unbound.of_replica(0).processors_of(0) == ()


def test_threads_without_a_processor_of_their_own_are_not_bound() -> None:
    few = dataclasses.replace(TWO_CORES, binding_order=(0,))
    config, decisions = settle(few, num_threads=2, cpu_binding=True)
    assert config.cpu_binding == ()
    assert decisions["--cpu-binding"].got is False and "lower --num-threads" in decisions["--cpu-binding"].why


def test_a_system_that_cannot_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qanat.config.binding.can_bind", lambda: False)
    said: list[Decision] = []
    assert bound_processors(EngineConfig(cpu_binding=True), EIGHT, 1, 1, said) == ()
    assert said[0].got is False and "does not let a thread choose" in said[0].why


def test_the_flag_goes_before_the_key_and_a_key_that_is_no_switch_is_refused() -> None:
    _, decisions = settle(cpu_binding=False, additional_config={"enable_cpu_binding": True})
    assert decisions["--additional-config.enable_cpu_binding"].got == "ignored"
    for value in ("True", 1, {}):
        with pytest.raises(ConfigError, match="enable_cpu_binding: .* is neither true nor false"):
            settle(additional_config={"enable_cpu_binding": value})


def test_other_keys_are_still_named() -> None:
    config, decisions = settle(additional_config={"enable_cpu_binding": True, "enable_mlapo": True})
    assert config.cpu_binding
    assert decisions["--additional-config"].wanted == {"enable_mlapo": True}
    assert without_binding(None) == {}
