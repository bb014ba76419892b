"""What the compiled module writes for a draft layer's recorded passes is what Python writes for eager ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.cache.spec import cache_spec
from qanat.core.batch import NewRow
from qanat.core.sampling_params import SamplingParams
from qanat.kernels.native import module
from qanat.worker.cache_tensors import allocate_cache
from qanat.worker.drafters.draft_inputs import DraftInputs, GraphDraftInputs, Segment
from qanat.worker.row_state import RowTable
from tests.worker.tiny_model import CONFIGS

BLOCK_SIZE, NUM_ROWS, NUM_BLOCKS, NUM_LATER, MAX_TOKENS = 16, 3, 6, 3, 40
SPEC = cache_spec(CONFIGS["qwen3_5"], block_size=BLOCK_SIZE, kv_dtype="float32")


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """(first, start, end, drafts) of each request."""
    found = []
    for _ in range(draw(st.integers(1, NUM_ROWS))):
        end = draw(st.integers(2, (NUM_BLOCKS - 1) * BLOCK_SIZE))
        start = draw(st.integers(max(1, end - 12), end - 1))
        found.append((draw(st.integers(1, start)), start, end, draw(st.integers(0, NUM_LATER + 1))))
    return found


@pytest.mark.skipif(not module.is_built(), reason=module.why_not())
@given(requests())
def test_both_write_the_same(asked: list[tuple[int, int, int, int]]) -> None:
    table = RowTable(NUM_ROWS, NUM_BLOCKS, 50)
    cache = allocate_cache(SPEC, 2, 1)
    segments = []
    for row, (first, start, end, num_drafts) in enumerate(asked):
        blocks = [1 + row * NUM_BLOCKS + i for i in range(NUM_BLOCKS)]
        sampling = SamplingParams(temperature=0.5)
        tokens = list(range(row, row + end))
        table.enter(NewRow(row, str(row), tokens, 1, 0, sampling, row, 0, [], blocks, row))
        segments.append(Segment(row, table[row], start, end, first, num_drafts))
    sizes = (MAX_TOKENS, NUM_ROWS, NUM_LATER, table, cache, BLOCK_SIZE)
    plain, native = DraftInputs(*sizes), GraphDraftInputs(*sizes)
    native.fill([Segment(0, table[0], 1, 2, 1, NUM_LATER + 1)])  # leaves something behind
    for one in (plain, native):
        one.fill(segments)
    for name in ("_token_ids", "_positions", "_slots", "_sources", "_last_rows", "_later_positions"):
        np.testing.assert_array_equal(getattr(native, name), getattr(plain, name), name)
    for name in ("_later_slots", "_query_lens", "_seq_lens", "_query_starts"):
        np.testing.assert_array_equal(getattr(native, name), getattr(plain, name), name)
    for request, one in enumerate(segments):
        num_blocks = NUM_BLOCKS - one.first // BLOCK_SIZE
        own = plain._block_tables[request, :num_blocks]
        np.testing.assert_array_equal(native._block_tables[request, :num_blocks], own)
        for index in range(one.num_drafts):
            assert native._draws[index, request] == plain._draws[index, request]
