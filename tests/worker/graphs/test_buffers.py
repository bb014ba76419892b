"""What lies in a graph's buffers is what an eager step builds, and padding behind it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from qanat.core.batch import NewRow
from qanat.core.sampling_params import SamplingParams
from qanat.kernels.draws import DRAW
from qanat.worker.batch_inputs import RowWork, build_inputs
from qanat.worker.graphs.buffers import StepBuffers
from qanat.worker.row_state import RowTable
from qanat.worker.sampler import draws_of
from tests.worker.driver import Driver

NUM_ROWS, BLOCK_SIZE, MAX_TOKENS, TABLE_WIDTH = 5, 4, 24, 8


def table_of(chance: random.Random) -> RowTable:
    """Rows of all lengths, each with blocks enough."""
    table = RowTable(NUM_ROWS, TABLE_WIDTH, num_valid_token_ids=99)
    for row in range(NUM_ROWS):
        tokens = [chance.randrange(99) for _ in range(chance.randint(1, 20))]
        blocks = chance.sample(range(1, 80), -(-len(tokens) // BLOCK_SIZE))
        sampling = SamplingParams(temperature=0.9, top_k=row)
        table.enter(NewRow(row, f"r{row}", tokens, len(tokens), 0, sampling, 7 * row, 1, [], blocks, row + 1))
        for token_id in range(chance.randint(0, 3)):
            if len(tokens) + token_id < len(blocks) * BLOCK_SIZE:
                table[row].append([token_id])
    return table


def works_of(table: RowTable, chance: random.Random) -> list[RowWork]:
    """Some rows in any order, each with some of its tokens."""
    works, offset = [], 0
    for row in chance.sample(range(NUM_ROWS), chance.randint(1, NUM_ROWS)):
        end = chance.randint(1, table[row].num_tokens)
        start = chance.randint(max(0, end - 4), end - 1)
        works.append(RowWork(row, table[row], start, end, offset))
        offset += end - start
    return works


@pytest.mark.parametrize("seed", range(5))
def test_buffers_hold_a_step_and_padding(seed: int) -> None:
    chance, driver = random.Random(seed), Driver()
    table = table_of(chance)
    buffers = StepBuffers(MAX_TOKENS, table, driver.cache, BLOCK_SIZE)
    nothing = torch.zeros(0)
    for _ in range(20):
        works = works_of(table, chance)
        ids, expected = build_inputs(works, table, driver.cache, driver.model, BLOCK_SIZE)
        buffers.fill(works)
        num_tokens, num_requests = len(ids), len(works)
        found = buffers.context(MAX_TOKENS, MAX_TOKENS, nothing, nothing)
        for values, own in (
            (ids, buffers.token_ids(MAX_TOKENS)),
            (expected.positions[0], found.positions[0]),
            (expected.slot_mapping, found.slot_mapping),
            (expected.host_query_lens, found.host_query_lens),
            (expected.seq_lens, found.seq_lens),
            (expected.num_computed, found.num_computed),
            (expected.state_ids, found.state_ids),
        ):
            assert own.tolist() == np.pad(values.numpy(), (0, MAX_TOKENS - len(values))).tolist()
        starts = found.query_start_loc.tolist()
        assert starts == expected.query_start_loc.tolist() + [num_tokens] * (MAX_TOKENS - num_requests)
        drawn = buffers.draws(MAX_TOKENS).numpy().view(DRAW)[:, 0]
        following = [(work.state, position + 1) for work in works for position in range(work.start, work.end)]
        assert drawn[:num_tokens].tolist() == draws_of(following).tolist()
        assert not drawn[num_tokens:]["temperature"].any()
        for i, work in enumerate(works):
            own_blocks = table.block_tables[work.row, : work.state.num_blocks]
            assert found.block_tables[i, : work.state.num_blocks].tolist() == own_blocks.tolist()
    buffers.clear()
    assert not buffers.token_ids(MAX_TOKENS).any() and not found.seq_lens.any()
