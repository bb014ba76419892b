from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat import EngineConfig
from qanat.config.graphs import (
    MODES,
    GraphSettings,
    GraphWishes,
    default_sizes,
    read_graph_wishes,
    settle_graphs,
)
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError


def settled(
    max_num_seqs: int = 20, why_not: str = "", **wishes: Any
) -> tuple[GraphSettings, dict[str, Decision]]:
    said: list[Decision] = []
    read = read_graph_wishes(EngineConfig(**wishes), said)
    graphs, more = settle_graphs(read, max_num_seqs, 512, why_not)
    return graphs, {decision.field: decision for decision in [*said, *more]}


def test_the_default_is_the_ladder_as_far_as_requests_can_use_it() -> None:
    graphs, decisions = settled()
    assert graphs == GraphSettings("FULL_DECODE_ONLY", (1, 2, 4, 8, 16, 24))
    assert decisions["--compilation-config"].got == "FULL_DECODE_ONLY"
    assert decisions["--cudagraph-capture-sizes"].got == graphs.sizes


def test_the_ladder_is_vllms() -> None:
    assert default_sizes(3) == (1, 2)
    assert default_sizes(40) == (1, 2, 4, 8, 16, 24, 32, 40)
    assert default_sizes(288)[-4:] == (248, 256, 272, 288)
    assert len(default_sizes(512)) == 51


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_vllm_is_taken_as_it_is(mode: str) -> None:
    graphs, decisions = settled(compilation_config={"cudagraph_mode": mode.lower()})
    assert graphs.mode == mode
    assert "--compilation-config" not in decisions


def test_sizes_that_no_step_reaches_are_dropped() -> None:
    graphs, decisions = settled(compilation_config={"cudagraph_capture_sizes": [48, 1, 8, 24, 8, 32]})
    assert graphs.sizes == (1, 8, 24)
    assert decisions["--cudagraph-capture-sizes"].wanted == (1, 8, 24, 32, 48)
    mixed, _ = settled(
        compilation_config={"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 512, 600, 700]}
    )
    assert mixed.sizes == (1, 512)


def test_sizes_that_no_step_may_have_are_dropped_and_the_reason_is_said() -> None:
    graphs, decisions = settled(compilation_config={"cudagraph_capture_sizes": [1, 100_000_000]})
    assert graphs.sizes == (1,)
    assert "--max-num-batched-tokens" in decisions["--cudagraph-capture-sizes"].why
    none, decisions = settled(cudagraph_capture_sizes=("100000000",))
    assert none == GraphSettings()
    assert decisions["--cudagraph-capture-sizes"].got == ()
    assert settled(max_cudagraph_capture_size=10**15)[0].max_size <= 512


def test_flags_of_their_own_say_the_same() -> None:
    assert settled(cudagraph_capture_sizes=("4", "2"))[0].sizes == (2, 4)
    assert settled(max_cudagraph_capture_size=8)[0].sizes == (1, 2, 4, 8)
    in_json, _ = settled(cudagraph_capture_sizes=("4",), compilation_config={"cudagraph_capture_sizes": [2]})
    assert in_json.sizes == (2,)


def test_eager_goes_before_everything() -> None:
    graphs, decisions = settled(
        enforce_eager=True, compilation_config={"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1]}
    )
    assert graphs == GraphSettings()
    assert decisions["--compilation-config"].why == "--enforce-eager"
    assert decisions["--cudagraph-capture-sizes"].got == ()
    assert settled(enforce_eager=True)[1] == {}


def test_without_native_kernels_there_are_none_and_the_reason_is_said() -> None:
    graphs, decisions = settled(why_not="no compiler")
    assert graphs == GraphSettings() and graphs.max_size == 0
    assert decisions["--compilation-config"].why == "no compiler"
    assert settled(why_not="x", compilation_config={"cudagraph_mode": "NONE"})[1] == {}


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"cudagraph_mode": "FULL_DECODE"}, "did you mean FULL_DECODE_ONLY?"),
        ({"cudagraph_mode": 7}, "Choose one of NONE, PIECEWISE"),
        ({"cudagraph_capture_sizes": []}, "no list of sizes"),
        ({"cudagraph_capture_sizes": "1,2"}, "no list of sizes"),
        ({"cudagraph_capture_sizes": [1, 0]}, "whole number from 1 on"),
        ({"cudagraph_capture_sizes": [True]}, "whole number from 1 on"),
        ({"cudagraph_capture_sizes": [1.5]}, "whole number from 1 on"),
        ({"cudagraph_capture_sizes": list(range(1, 600))}, "too many"),
        ({"cudagraph_capture_sizes": [1, 8], "max_cudagraph_capture_size": 16}, "largest of"),
        ({"max_cudagraph_capture_size": -1}, "whole number from 1 on"),
    ],
)
def test_what_means_nothing_is_refused(value: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settled(compilation_config=value)
    assert part in caught.value.message


@given(st.sets(st.integers(1, 600), min_size=1), st.integers(1, 300), st.sampled_from(sorted(MODES)))
def test_every_step_that_fits_finds_a_size_and_every_size_a_step(
    sizes: set[int], max_num_seqs: int, mode: str
) -> None:
    graphs, _ = settle_graphs(GraphWishes(mode=mode, sizes=tuple(sorted(sizes))), max_num_seqs, 512, "")
    if mode == "NONE":
        assert graphs.sizes == ()
        return
    most = max_num_seqs if graphs.mixed_kind == "eager" else 512
    reachable = {
        next((size for size in sorted(sizes) if size >= tokens), None) for tokens in range(1, most + 1)
    }
    assert set(graphs.sizes) == {size for size in reachable if size is not None and size <= 512}
