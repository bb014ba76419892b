"""Published figures: which are nearest, which may be compared, how they are told."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from qanat.deploy.baselines import (
    Load,
    Setup,
    is_comparable,
    layout_text,
    nearest_throughput,
    published_accuracies,
    throughputs,
)
from qanat.deploy.knowledge.load import load_knowledge
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes

KNOWLEDGE = load_knowledge()
SETUP = Setup.of(single_node())
LOAD = Load(3500, 1500, 160)


def test_a_setup_is_that_of_the_side_that_decodes() -> None:
    assert SETUP == Setup(
        "Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp Qwen3.5-397B-A17B", "w8a8", "A3", False, 16, 1, 3
    )
    assert Setup.of(two_nodes()).data_parallel_size == 2
    assert Setup.of(disaggregated()).is_disaggregated


def test_the_figure_of_the_same_layout_and_load_is_nearest() -> None:
    (nearest,) = nearest_throughput(SETUP, LOAD, KNOWLEDGE)
    assert nearest.value == 1959.9723
    assert is_comparable(nearest, SETUP, LOAD)
    (nearest,) = nearest_throughput(
        replace(SETUP, chip="A2", weights="w4a8", tensor_parallel_size=8), LOAD, KNOWLEDGE
    )
    assert nearest.value == 1066.018


def test_figures_that_are_equally_near_are_all_told() -> None:
    setup = replace(Setup.of(disaggregated()), weights="w4a8")
    found = nearest_throughput(setup, Load(3500, 1500, 128), KNOWLEDGE)
    assert [one.value for one in found] == [1842.2384, 1961.5719]


def test_another_layout_or_load_is_not_compared() -> None:
    (nearest,) = nearest_throughput(SETUP, LOAD, KNOWLEDGE)
    for other in (
        replace(SETUP, chip="A2"),
        replace(SETUP, weights="w4a8"),
        replace(SETUP, tensor_parallel_size=8),
        replace(SETUP, is_disaggregated=True),
    ):
        assert not is_comparable(nearest, other, LOAD)
    for load in (
        replace(LOAD, concurrency=64),
        replace(LOAD, input_tokens=8192),
        replace(LOAD, shared_prefix_percent=90),
    ):
        assert not is_comparable(nearest, SETUP, load)
    assert is_comparable(nearest, SETUP, replace(LOAD, concurrency=150))


def test_models_are_not_mixed_up() -> None:
    assert nearest_throughput(replace(SETUP, repository="somebody/Unknown-1B"), LOAD, KNOWLEDGE) == []
    assert published_accuracies(replace(SETUP, repository="somebody/Unknown-1B"), KNOWLEDGE) == []
    for figure in throughputs(replace(SETUP, repository="Qwen/Qwen3-32B"), KNOWLEDGE):
        assert "Qwen3-32B" in figure.repository


def test_accuracies_of_the_same_weights_come_first() -> None:
    found = published_accuracies(replace(SETUP, weights="w4a8"), KNOWLEDGE)
    kinds = [one.weights == "w4a8" for one in found]
    assert kinds == sorted(kinds, reverse=True) and any(kinds) and not all(kinds)


def test_a_layout_is_told_with_what_is_known_of_it() -> None:
    (nearest,) = nearest_throughput(SETUP, LOAD, KNOWLEDGE)
    assert layout_text(nearest) == "w8a8, A3, TP16 DP1, k 3, 3500 in, 1500 out, 160 at once"
    bare = msgspec.structs.replace(
        nearest,
        chip=None,
        is_disaggregated=True,
        tensor_parallel_size=None,
        data_parallel_size=None,
        num_speculative_tokens=None,
        shared_prefix_percent=90,
        concurrency=None,
    )
    assert (
        layout_text(bare) == "w8a8, chip not named, prefill and decode apart, 3500 in (90 % shared), 1500 out"
    )
