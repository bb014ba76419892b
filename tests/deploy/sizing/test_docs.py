"""The worked example of the page on memory has the figures that are computed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qanat.deploy.sizing.budget import memory_of
from qanat.deploy.sizing.cache_layout import cache_of
from qanat.deploy.sizing.communicators import mc2_need_mib, recommended_buffer_mib
from qanat.deploy.sizing.verdict import fits, most_resident
from qanat.deploy.sizing.weights import weight_format
from tests.deploy.sizing.cases import KNOWLEDGE, example, golden

PAGE = " ".join((Path(__file__).parents[3] / "docs" / "deploy-memory.md").read_text(encoding="utf-8").split())
TABLE = dict(re.findall(r"\| ([a-z][^|]*?) \| (-?\d+\.\d\d) \|", PAGE))


def test_the_table_of_the_example() -> None:
    memory = memory_of(example())
    computed = {item.name: item.size_bytes for item in memory.items}
    computed |= {
        "an NPU": memory.total_bytes,
        "budget, 0.9 of it": memory.budget_bytes,
        "pool of cache blocks": memory.pool_bytes,
        "head-room": memory.head_room_bytes,
    }
    assert {name: f"{size / 1e9:.2f}" for name, size in computed.items()} == TABLE


def test_the_sentences_of_the_example() -> None:
    layout = example()
    memory, cache = memory_of(layout), cache_of(layout)
    assert f"The pool has {memory.num_blocks} blocks of {memory.block_tokens} tokens." in PAGE
    blocks = cache.blocks_for(133000)
    assert f"takes {blocks} of them, so {memory.most_sequences} such sequences fit" in PAGE
    assert f"{most_resident(layout, memory)} fit where one is that long" in PAGE
    assert f"which take {memory.needed_pool_bytes / 1e9:.2f} GB: it fits" in PAGE and fits(layout, memory)
    assert f"{cache.state_bytes:,} bytes, the keys of {cache.block_tokens} tokens" in PAGE
    assert f"{cache.page_bytes:,} bytes; 15 attention layers" in PAGE
    assert f"each of them: {cache.pool_block_bytes:,} bytes" in PAGE
    assert f"That is {cache.state_blocks} blocks" in PAGE


def test_what_is_said_of_buffers() -> None:
    layout = example()
    smaller = example(hccl_buffer_mib=recommended_buffer_mib(layout))
    saved = memory_of(smaller).pool_bytes - memory_of(layout).pool_bytes
    assert f"needs {mc2_need_mib(layout):.0f} MiB" in PAGE
    assert f"`HCCL_BUFFSIZE={smaller.hccl_buffer_mib}` would do, and leave {saved / 1e9:.2f} GB more" in PAGE
    for name, size in (("tensor and expert parallel groups", "tp"), ("data parallel ones", "dp")):
        assert f"{name} of {KNOWLEDGE.communicators[size].buffer_mib} MiB" in PAGE


@pytest.mark.parametrize("name", ["bf16", "w8a8", "w4a8", "w8a8-mxfp8", "w4a4-mxfp4"])
def test_the_table_of_formats(name: str) -> None:
    kind = weight_format(name)
    (row,) = re.findall(
        rf"\| {name} \| (\d+) bits(?: and ([\d.]+) %)?[^|]*\| (\d+) bits(?: and ([\d.]+) %)?", PAGE
    )
    expected = (kind.expert_bits, kind.expert_overhead_percent, kind.linear_bits, kind.overhead_percent)
    assert tuple(float(text or 0) for text in row) == expected


def test_the_number_of_outcomes_is_that_of_the_golden_file() -> None:
    assert f"agree with {len(golden('outcomes.yaml'))} outcomes" in PAGE
