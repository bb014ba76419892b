"""Copies of states, and what a request computes that begins from one: the same bits as from its first token on."""

from __future__ import annotations

import torch

from qanat.cache.spec import cache_spec
from qanat.core.batch import NewRow, ScheduledBatch, ScheduledRow, StateCopy
from qanat.core.sampling_params import SamplingParams
from qanat.worker.cache_tensors import allocate_cache
from qanat.worker.state_copies import copy_states
from tests.worker.driver import BLOCK_SIZE, Driver, random_prompt
from tests.worker.tiny_model import tiny_model


def test_copies_are_made_one_after_the_other_in_all_layers() -> None:
    spec = cache_spec(tiny_model("qwen3_5").config, block_size=BLOCK_SIZE, kv_dtype="float32")
    cache = allocate_cache(spec, num_blocks=2, num_states=5)
    tensors = [*cache.conv_states, *cache.recurrent_states]
    for tensor in tensors:
        tensor.copy_(torch.arange(5.0).view(5, *[1] * (tensor.ndim - 1)).expand_as(tensor))
    copy_states(cache, [StateCopy(1, 3), StateCopy(3, 4), StateCopy(2, 3)])
    for tensor in tensors:
        assert [tensor[state_id].unique().tolist() for state_id in range(5)] == [
            [0.0],
            [1.0],
            [2.0],
            [2.0],
            [1.0],
        ]


def test_a_request_that_begins_from_a_checkpoint_computes_what_it_would_alone() -> None:
    prompt = random_prompt(90, seed=1)
    driver = Driver()
    driver.add("first", prompt)
    driver.step({"first": 64})
    running, checkpoint = driver.running["first"].new_row.state_id, 9
    blocks = driver.running["first"].blocks
    sampling = SamplingParams(temperature=0.0, max_tokens=999)
    second = NewRow(5, "second", prompt, 90, 64, sampling, 0, 0, [], [*blocks, 70, 71], 8)
    batch = ScheduledBatch(
        driver.step_id,
        [],
        [second],
        [ScheduledRow(0, 26, [60, 61]), ScheduledRow(5, 26, [])],
        [StateCopy(running, checkpoint), StateCopy(checkpoint, 8)],
    )
    own, begun = driver.runner.run(batch).rows
    assert own.token_ids == begun.token_ids
    tensors = [*driver.cache.conv_states, *driver.cache.recurrent_states]
    assert all(torch.equal(tensor[running], tensor[8]) for tensor in tensors)
    assert not any(torch.equal(tensor[running], tensor[checkpoint]) for tensor in tensors)
