"""Rule R1 for whole models: a sequence has the same bits however it is cut, whatever is computed beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from tests.support.forward import ForwardRunner
from tests.worker.tiny_model import CONFIGS, VOCAB_SIZE

NUM_TOKENS = 150
TOKENS = torch.randint(0, VOCAB_SIZE, (NUM_TOKENS,), generator=torch.Generator().manual_seed(3)).tolist()


@pytest.fixture(scope="module", params=["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[request.param]


@pytest.fixture(scope="module", params=["qwen3", "qwen3_5", "qwen3_5_moe"])
def model(request: pytest.FixtureRequest, dtype: torch.dtype) -> CausalLM:
    """Its dense layers have sums long enough for a library to cut."""
    return load_dummy(dataclasses.replace(CONFIGS[request.param], intermediate_size=512), dtype, seed=3)


def in_one_step(model: CausalLM) -> tuple[Tensor, list[Tensor]]:
    """Scores of all rows, and the states behind the last."""
    runner = ForwardRunner(model)
    (scores,) = runner.step([("r", TOKENS)])
    return scores, states(runner, "r")


@pytest.fixture(scope="module")
def whole(model: CausalLM) -> tuple[Tensor, list[Tensor]]:
    return in_one_step(model)


@pytest.fixture(params=[1, 3], ids="threads={}".format)
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def states(runner: ForwardRunner, name: str) -> list[Tensor]:
    """What a request's next token will be computed from: states, keys and values in their order."""
    request = runner.running[name]
    own = [tensor[request.state_id] for tensor in [*runner.conv_states, *runner.recurrent_states]]
    blocks = [cache[:, request.blocks].flatten(1, 2)[:, : request.num_computed] for cache in runner.kv_cache]
    return own + blocks


def check(model: CausalLM, whole: tuple[Tensor, list[Tensor]], cuts: list[int], beside: list[int]) -> None:
    """Computes the tokens in pieces, with other requests' pieces before and behind them."""
    runner, rows, done, step = ForwardRunner(model), [], 0, 0
    for cut in [*cuts, NUM_TOKENS]:
        if cut <= done:
            continue
        before, behind = beside[step % len(beside)], beside[(step + 1) % len(beside)]
        batch = [("r", TOKENS[done:cut])]
        batch = [("b", TOKENS[:before])] * (before > 0) + batch + [("c", TOKENS[-behind:])] * (behind > 0)
        scores = dict(zip((name for name, _ in batch), runner.step(batch), strict=True))
        rows.append(scores["r"])
        for name, _ in batch:
            if name != "r":
                runner.release(name)
        done, step = cut, step + 1
    assert torch.equal(torch.cat(rows), whole[0])
    for ours, theirs in zip(states(runner, "r"), whole[1], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("num_threads")
def test_a_prompt_and_then_token_by_token(model: CausalLM) -> None:
    """What a resumed request reads at once, the uninterrupted one has generated one by one, on as many threads."""
    check(model, in_one_step(model), list(range(60, NUM_TOKENS)), [0])


@settings(max_examples=4, deadline=None)
@given(
    cuts=st.lists(st.integers(1, NUM_TOKENS - 1), max_size=12).map(sorted),
    beside=st.lists(st.sampled_from([0, 0, 1, 2, 7, 33]), min_size=1, max_size=4),
)
def test_any_cuts_in_any_company(
    model: CausalLM, whole: tuple[Tensor, list[Tensor]], cuts: list[int], beside: list[int]
) -> None:
    check(model, whole, cuts, beside)
