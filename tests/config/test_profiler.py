"""--profiler-config: what is served, what is named as without effect, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.config.known_flags import read_data
from qanat.config.profiler import KINDS, ProfilerSettings, profiler_settings
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

SEED = {"profiler": "torch", "torch_profiler_dir": "/data/profiling", "torch_profiler_with_stack": False}


def read(**value: Any) -> ProfilerSettings:
    settings = profiler_settings({"torch_profiler_dir": "/data/profiling", **value}, [])
    assert settings is not None
    return settings


def said_of(value: dict[str, Any]) -> dict[str, Decision]:
    said: list[Decision] = []
    profiler_settings(value, said)
    return {decision.field: decision for decision in said}


def test_the_value_of_the_seeds() -> None:
    assert profiler_settings(SEED, []) == ProfilerSettings("/data/profiling", ("torch",))
    assert said_of(SEED) == {}


@pytest.mark.parametrize("value", [None, {}])
def test_nothing_said_is_off(value: dict[str, Any] | None) -> None:
    said: list[Decision] = []
    assert profiler_settings(value, said) is None and said == []


@pytest.mark.parametrize("value", [{"profiler": "torch"}, {"profiler": "ops", "torch_profiler_dir": ""}])
def test_without_a_folder_it_is_off_and_that_is_said(value: dict[str, Any]) -> None:
    decision = said_of(value)["--profiler-config"]
    assert decision.got == "no profiler" and "torch_profiler_dir" in decision.why


def test_what_is_recorded() -> None:
    assert read().kinds == ("torch", "ops")
    assert read(profiler=None).kinds == ("torch", "ops")
    assert [read(profiler=name).kinds for name in KINDS] == list(KINDS.values())


def test_a_relative_folder_is_settled_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(torch_profiler_dir="a/../b").folder == str(tmp_path.resolve() / "b")


def test_steps_that_are_skipped_and_bounds() -> None:
    assert read(delay_iterations=3, max_iterations=7).max_steps == 7
    assert read(delay_iterations=3).num_skipped_steps == 3
    assert read().max_steps == 0
    assert read(active_iterations=4).max_steps == 0  # as in vLLM it counts only with one of the two below
    waited = read(delay_iterations=1, wait_iterations=2, warmup_iterations=3)
    assert (waited.num_skipped_steps, waited.num_warmup_steps, waited.max_steps) == (3, 3, 5)
    assert read(warmup_iterations=1, active_iterations=9, max_iterations=2).max_steps == 2
    assert read(max_trace_bytes="1MiB").max_trace_bytes == 2**20


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"profiler": "cuda"}, "'cuda'"),
        ({"profiler": "proton"}, "'proton'"),
        ({"profiler": ["torch"]}, "torch, ops, all"),
        ({"proton_mode": "x"}, "proton_mode"),
        ({"torch_profiler_dir": "gs://bucket/x"}, "no folder of this machine"),
        ({"torch_profiler_dir": 3}, "torch_profiler_dir"),
        ({"torch_profiler_with_stack": 3}, "torch_profiler_with_stack"),
        ({"delay_iterations": -1}, "delay_iterations"),
        ({"active_iterations": 0}, "active_iterations"),
        ({"max_duration_s": 0}, "max_duration_s"),
        ({"max_trace_bytes": 10}, "max_trace_bytes"),
        ({"torch_profiler_activities": ["CUDA"]}, "torch_profiler_activities"),
        ({"torch_profiler_activities": "CPU"}, "torch_profiler_activities"),
    ],
)
def test_what_is_refused_is_named(value: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match="--profiler-config") as info:
        read(**value)
    assert part in info.value.message


def test_keys_without_effect_are_named() -> None:
    keys = ("torch_profiler_dump_cuda_time_total", "ignore_frontend", "capture_torch_profiler")
    said = said_of({**SEED, **{key: True for key in keys}, "torch_profiler_dri": "x"})
    assert {said[f"--profiler-config.{key}"].got for key in keys} == {"no effect"}
    assert "did you mean torch_profiler_dir" in said["--profiler-config.torch_profiler_dri"].why
    cpu = said_of({**SEED, "torch_profiler_activities": ["CPU", "CUDA"]})
    assert cpu["--profiler-config.torch_profiler_activities"].got == ["CPU"]


@pytest.mark.parametrize("key", read_data("json_keys.json")["keys"]["profiler-config"])
def test_every_key_of_vllm_is_served_named_or_refused(key: str) -> None:
    odd = object()
    try:
        settings = read(**{key: odd})
    except ConfigError as error:
        assert key in error.message or key == "profiler"
        return
    assert settings == read()
    assert f"--profiler-config.{key}" in said_of({"torch_profiler_dir": "/x", key: odd})


def test_it_travels_to_the_core() -> None:
    settings = read(profiler="ops", max_iterations=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(settings), type=ProfilerSettings) == settings
