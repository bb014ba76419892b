"""Every entry that sizes are computed from is used, and agrees with the others."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType

import msgspec
import pytest

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.entry import Entry
from qanat.deploy.knowledge.kinds.models import Weights
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.weights import total_weight_bytes, weight_bytes, weight_format
from tests.deploy.sizing.cases import CHIPS, KNOWLEDGE, MODELS, example

EVERYTHING = {"dp": 2, "num_redundant_experts": 16, "expert_parallel": True}


def changed(table: str, name: str, entry: Entry) -> Knowledge:
    """The knowledge base with one entry put in place of another."""
    entries = MappingProxyType({**KNOWLEDGE.tables[table].entries, name: entry})
    tables = {**KNOWLEDGE.tables, table: replace(KNOWLEDGE.tables[table], entries=entries)}
    return replace(KNOWLEDGE, tables=tables)


@pytest.mark.parametrize("name", KNOWLEDGE.tables["estimates"].entries)
def test_every_estimate_changes_some_memory(name: str) -> None:
    entry = KNOWLEDGE.tables["estimates"].entries[name]
    other = changed("estimates", name, msgspec.structs.replace(entry, value=entry.value * 2))
    layouts = [
        example(**EVERYTHING),
        example(max_num_seqs=4000),
        example(model=MODELS["Qwen3.5-0.8B"], tp=1, max_num_batched_tokens=131072, language_model_only=True),
        example(max_num_batched_tokens=64, max_num_seqs=1),
    ]
    assert any(memory_of(layout, other) != memory_of(layout) for layout in layouts)


@pytest.mark.parametrize("name", KNOWLEDGE.communicators)
def test_every_communicator_is_counted(name: str) -> None:
    entry = msgspec.structs.replace(KNOWLEDGE.communicators[name], buffer_mib=5000)
    layout = example(**EVERYTHING)
    less = memory_of(layout, changed("communicators", name, entry)).pool_bytes
    assert less < memory_of(layout).pool_bytes


def test_every_format_is_that_of_published_weights() -> None:
    published = {weights.variant for weights in KNOWLEDGE.weights}
    assert published == set(KNOWLEDGE.weight_formats)


def test_every_model_has_weights() -> None:
    assert {weights.model for weights in KNOWLEDGE.weights} == set(MODELS)


@pytest.mark.parametrize("weights", KNOWLEDGE.weights, ids=lambda weights: weights.name.replace(" ", "-"))
def test_weights_are_of_a_known_model_and_format(weights: Weights) -> None:
    model = MODELS[weights.model]
    kind = weight_format(weights.variant)
    assert weights.name == f"{weights.model} {weights.variant}"
    assert re.search(model.pattern, weights.repository.lower())
    assert weights.has_drafter is (model.num_mtp_layers > 0)
    if weights.size_gb is not None:
        assert total_weight_bytes(model, weights.variant) / 1e9 == pytest.approx(weights.size_gb, rel=0.05)
    if kind.families:
        assert {CHIPS[chip].family for chip in weights.nodes} <= set(kind.families)


@pytest.mark.parametrize(
    "weights",
    [one for one in KNOWLEDGE.weights if one.nodes],
    ids=lambda weights: weights.name.replace(" ", "-"),
)
def test_documented_nodes_hold_the_weights(weights: Weights) -> None:
    model = MODELS[weights.model]
    for chip, nodes in weights.nodes.items():
        tp = CHIPS[chip].num_npus_per_node
        held = weight_bytes(model, weights.variant, tp, nodes * tp, "mtp", True)
        assert held < 0.8 * visible_bytes(CHIPS[chip]), chip
