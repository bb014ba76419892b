"""What guides, tests and issues say fits or does not, and what logs of real starts say."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from qanat.deploy.knowledge.kinds.numbers import Baseline
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.layout import Layout
from qanat.deploy.sizing.memory import Memory
from qanat.deploy.sizing.verdict import Shortage, ShortageKind, fits, most_resident, shortages, starts
from tests.deploy.sizing.cases import (
    CHIPS,
    KNOWLEDGE,
    MODELS,
    captured,
    drafter_of,
    example,
    golden,
    layout_of,
)

OUTCOMES = golden("outcomes.yaml")
MEASURED = golden("measured.yaml")
TESTED = [one for one in KNOWLEDGE.baselines.entries.values() if "tests/e2e/" in one.source]


@pytest.mark.parametrize("row", OUTCOMES, ids=lambda row: row["name"].replace(" ", "-"))
def test_outcome_is_the_reported_one(row: dict[str, Any]) -> None:
    layout = layout_of(row)
    memory = memory_of(layout)
    found = {
        "fits": fits(layout, memory),
        "starts": starts(layout, memory),
        "does_not_fit": not fits(layout, memory),
        "does_not_start": not starts(layout, memory),
    }
    assert found[row["outcome"]], [shortage.message for shortage in shortages(layout, memory)]
    if "tight" in row:
        kinds = {shortage.kind for shortage in shortages(layout, memory)}
        assert (ShortageKind.HEAD_ROOM in kinds) is row["tight"], memory.head_room_bytes


def test_every_outcome_has_a_source_and_a_name_of_its_own() -> None:
    assert all(row["source"] for row in OUTCOMES)
    assert len({row["name"] for row in OUTCOMES}) == len(OUTCOMES)


def test_all_layouts_of_the_nightly_and_weekly_tests_are_looked_at() -> None:
    assert len(TESTED) == 63


@pytest.mark.parametrize("baseline", TESTED, ids=lambda baseline: baseline.name)
def test_layouts_of_nightly_and_weekly_tests_start(baseline: Baseline) -> None:
    layout = layout_of_baseline(baseline)
    memory = memory_of(layout)
    assert starts(layout, memory), [shortage.message for shortage in shortages(layout, memory)]
    assert memory.head_room_bytes >= 0


def layout_of_baseline(baseline: Baseline) -> Layout:
    """With the settings that these tests share: 0.9, steps of 16384 tokens, buffers of 1024 MiB.

    Disaggregated ones do not state their sizes in the figures; they run TP 2, DP 8 on a node.
    """
    (model,) = [one for one in MODELS.values() if re.search(one.pattern, baseline.repository.lower())]
    k = baseline.num_speculative_tokens or 0
    dp = baseline.data_parallel_size or (8 if baseline.is_disaggregated else 1)
    seqs = -(-(baseline.concurrency or 1) // dp)
    return Layout(
        model=model,
        variant=baseline.weights,
        npu_bytes=visible_bytes(CHIPS[baseline.chip or "A3"]),
        tp=baseline.tensor_parallel_size or 2,
        dp=dp,
        drafter=drafter_of(model, k),
        num_speculative_tokens=k,
        max_model_len=(baseline.input_tokens or 0) + (baseline.output_tokens or 0),
        max_num_seqs=seqs,
        max_num_batched_tokens=16384,
        gpu_memory_utilization=0.9,
        prefix_caching=baseline.shared_prefix_percent > 0,
        capture_sizes=captured(36, seqs * (1 + k)),
        hccl_buffer_mib=1024,
    )


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["name"].replace(" ", "-"))
def test_estimates_are_as_near_to_logs_as_is_claimed(row: dict[str, Any]) -> None:
    memory = memory_of(layout_of(row["layout"]))
    size = {item.name: item.size_bytes for item in memory.items}
    computed = {
        "total_bytes": memory.total_bytes,
        "pool_bytes": memory.pool_bytes,
        "activations": size["activations"],
        "communication_and_runtime": size["communication"] + size["runtime"],
    }
    compared = [name for name in computed if name in row]
    assert compared
    for name in compared:
        assert computed[name] == pytest.approx(row[name], rel=row["within"]), name


def test_what_an_npu_shows_is_what_the_log_says() -> None:
    assert memory_of(layout_of(MEASURED[0]["layout"])).total_bytes == MEASURED[0]["total_bytes"]


def test_ops_001_more_sequences_than_blocks_names_both_numbers_and_what_runs_at_once() -> None:
    layout = few_blocks(max_num_seqs=1024)
    memory = memory_of(layout)
    blocks = _shortages(layout)[0]
    assert blocks.kind is ShortageKind.BLOCKS and blocks.stops_start
    resident = most_resident(layout, memory)
    assert f"{memory.num_blocks} blocks" in blocks.message and "1024" in blocks.message
    assert f"{resident} can run" in blocks.message
    assert fits(*_computed(few_blocks(max_num_seqs=resident)))
    assert not fits(*_computed(few_blocks(max_num_seqs=2 * resident)))
    eager = few_blocks(max_num_seqs=1024, capture_sizes=())
    assert starts(*_computed(eager))


def test_the_number_that_runs_at_once_is_the_largest_that_fits() -> None:
    layout, memory = _computed(example())
    # 275 blocks for the long sequence, 16 for each that begins, one that the engine keeps empty.
    for num_blocks, resident in ((1 + 275 + 9 * 16, 10), (275 + 9 * 16, 9), (1 + 275, 1), (275, 0)):
        some = msgspec.structs.replace(memory, num_blocks=num_blocks)
        assert most_resident(layout, some) == resident


def few_blocks(**changes: Any) -> Layout:
    """A layout whose pool has some hundred blocks."""
    settings: dict[str, Any] = {"num_speculative_tokens": 0, "drafter": None, "gpu_memory_utilization": 0.6}
    settings |= {"max_model_len": 8192, "max_num_batched_tokens": 4096}
    return example(**settings | changes)


def test_messages_name_a_setting_that_helps() -> None:
    tight = example(gpu_memory_utilization=0.97)
    (head_room,) = _shortages(tight)
    share = float(head_room.message.split("Lower it to ")[1].split(",")[0])
    assert not _shortages(example(gpu_memory_utilization=share - 0.01))
    short = example(gpu_memory_utilization=0.53, max_model_len=262144)
    (context,) = _shortages(short)
    assert context.kind is ShortageKind.CONTEXT
    longest = int(context.message.split("Lower it to ")[1].split(",")[0])
    assert starts(*_computed(example(gpu_memory_utilization=0.53, max_model_len=longest)))
    (no_pool,) = _shortages(example(gpu_memory_utilization=0.3))
    assert no_pool.kind is ShortageKind.NO_POOL and "--gpu-memory-utilization 0.3" in no_pool.message
    many = example(max_num_seqs=400)
    (waits,) = _shortages(many)
    assert waits.kind is ShortageKind.SEQUENCES and not waits.stops_start
    assert f"Lower --max-num-seqs to {most_resident(*_computed(many))}." in waits.message


def _computed(layout: Layout) -> tuple[Layout, Memory]:
    return layout, memory_of(layout)


def _shortages(layout: Layout) -> tuple[Shortage, ...]:
    return shortages(layout, memory_of(layout))
