from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.config.engine_config import EngineConfig
from qanat.config.model_config import ModelConfig
from qanat.config.prepare import prepare
from qanat.config.resolve import resolve
from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import CapacityError
from qanat.executor.planning import fit_limits, plan_start
from qanat.models.registry import build_model
from qanat.models.units import load_units
from tests.config.tiny_folder import NO_VARIABLES, TINY_CONFIG, TWO_CORES, write_model

MIB = 2**20
MODEL = ModelConfig.from_dict(TINY_CONFIG)


def config_of(**wishes: Any) -> ResolvedConfig:
    config, _ = resolve(
        EngineConfig(load_format="dummy", enforce_eager=True, **wishes),
        MODEL,
        TWO_CORES,
        NO_VARIABLES,
        model_path="",
    )
    return config


def test_with_room_enough_nothing_gives_way() -> None:
    start = fit_limits(config_of(), available_bytes=64 * 2**30, weight_bytes=MIB)
    assert start.decisions == ()
    assert (start.memory.max_num_seqs, start.memory.max_model_len) == (64, 262144)


def test_a_default_length_is_cut_to_what_fits() -> None:
    config = config_of(max_num_seqs=2)
    start = fit_limits(config, available_bytes=580 * MIB, weight_bytes=MIB)
    (decision,) = start.decisions
    assert decision.field == "--max-model-len" and "262144" in decision.why
    got = start.config.scheduler.max_model_len
    assert got == decision.got == start.memory.max_model_len < 262144
    assert got <= start.memory.max_cached_tokens


def test_default_requests_leave_half_of_the_cache_to_the_blocks() -> None:
    """Trial case OPS-001, value left open: the start goes on with fewer requests and says so."""
    start = fit_limits(config_of(kv_cache_memory_bytes=MIB), available_bytes=2**30, weight_bytes=MIB)
    decisions = {decision.field: decision for decision in start.decisions}
    got = start.config.scheduler.max_num_seqs
    assert decisions["--max-num-seqs"].got == got == start.memory.max_num_seqs
    assert 1 <= got < 64
    assert 2 * start.memory.states_bytes <= MIB < 2 * (start.memory.states_bytes + start.memory.state_bytes)


def test_requests_that_were_asked_for_are_refused_with_both_numbers() -> None:
    """Trial case OPS-001, value set: the start fails and names what was asked and what there is."""
    config = config_of(max_num_seqs=256, max_num_batched_tokens=256, kv_cache_memory_bytes=2 * MIB)
    with pytest.raises(CapacityError, match=r"--max-num-seqs.*256"):
        fit_limits(config, available_bytes=2**30, weight_bytes=MIB)


def test_a_length_that_was_asked_for_is_refused_with_what_fits() -> None:
    config = config_of(max_model_len=262144, kv_cache_memory_bytes=4 * MIB)
    with pytest.raises(CapacityError, match="--max-model-len 262144") as caught:
        fit_limits(config, available_bytes=2**30, weight_bytes=MIB)
    assert "--kv-cache-memory-bytes" in caught.value.message


@settings(max_examples=60, deadline=None)
@given(
    available_mib=st.integers(150, 4000),
    weight_mib=st.integers(0, 200),
    share=st.floats(0.05, 1.0),
    max_num_seqs=st.none() | st.integers(1, 300),
    max_model_len=st.none() | st.integers(1, 262144),
)
def test_what_is_planned_fits_and_what_was_asked_for_stays(
    available_mib: int, weight_mib: int, share: float, max_num_seqs: int | None, max_model_len: int | None
) -> None:
    config = config_of(
        memory_share=share,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        max_num_batched_tokens=None,
    )
    try:
        start = fit_limits(config, available_bytes=available_mib * MIB, weight_bytes=weight_mib * MIB)
    except CapacityError as error:
        assert "--" in error.message
        return
    limits = start.config.scheduler
    assert start.memory.total_bytes <= start.memory.budget_bytes <= available_mib * MIB
    assert limits.max_model_len <= start.memory.max_cached_tokens
    assert start.memory.num_requests_of(limits.max_model_len) >= 1
    assert (limits.max_num_seqs, limits.max_model_len) == (
        start.memory.max_num_seqs,
        start.memory.max_model_len,
    )
    if max_num_seqs is not None:
        assert limits.max_num_seqs == max_num_seqs
    if max_model_len is not None:
        assert limits.max_model_len == max_model_len


def test_weights_are_sized_without_being_loaded(tmp_path: Path) -> None:
    import torch

    from qanat.kernels.providers import choose_providers

    write_model(tmp_path)
    prepared = prepare(EngineConfig(model=str(tmp_path)), NO_VARIABLES, TWO_CORES)
    start = plan_start(prepared.config, available_bytes=TWO_CORES.available_bytes)
    model = build_model(MODEL, torch.bfloat16, "cpu")
    choose_providers(1)
    for unit in list(load_units(model)):
        unit.finalize()
    assert start.memory.weight_bytes == model.size_bytes()
