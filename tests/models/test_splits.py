"""How a sequence is cut into steps, and what stands beside it in the batch, must not matter.

Trial cases ENG-011 (padding rows), ENG-012 (short last chunks), ENG-014 (prefill plus decode).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from qanat.models.decoder import CausalLM
from qanat.models.loader import load_model
from tests.models.reference import Transformers
from tests.models.tiny import FAMILIES, VOCAB_SIZE, load_tiny
from tests.support.forward import ForwardRunner

DENSE = next(family for family in FAMILIES if family.name == "qwen3_5-untied")
HYBRID = next(family for family in FAMILIES if family.name == "qwen3_5_moe-fused")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformers, CausalLM]:
    return load_tiny(HYBRID, tmp_path_factory.mktemp("hybrid"), torch.float32)


@pytest.fixture(scope="module")
def model(pair: tuple[Transformers, CausalLM]) -> CausalLM:
    return pair[1]


def tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB_SIZE, (count,), generator=generator).tolist()


def in_steps(model: CausalLM, prompt: list[int], cuts: list[int]) -> tuple[Tensor, ForwardRunner]:
    """Logits of all rows with the prompt cut at these positions."""
    runner, rows = ForwardRunner(model), []
    for start, stop in zip([0, *cuts], [*cuts, len(prompt)], strict=True):
        rows += runner.step([("a", prompt[start:stop])])
    return torch.cat(rows), runner


def assert_near(ours: Tensor, expected: Tensor, bound: float = 1e-4) -> None:
    span = (expected.max() - expected.min()).item()
    assert (ours - expected).abs().max().item() <= bound * span
    assert torch.equal(ours.argmax(-1), expected.argmax(-1))


@pytest.fixture(scope="module")
def token_by_token(model: CausalLM) -> Tensor:
    prompt = tokens(200)
    return in_steps(model, prompt, list(range(1, 200)))[0]


def test_every_prompt_length_equals_token_by_token(model: CausalLM, token_by_token: Tensor) -> None:
    prompt, runner = tokens(200), ForwardRunner(model)
    for length in range(1, 201):
        last = runner.step([("a", prompt[:length])])[0][-1:]
        runner.release("a")
        assert_near(last, token_by_token[length - 1 : length])


def test_two_prompts_of_different_length_packed(model: CausalLM, token_by_token: Tensor) -> None:
    prompt, runner = tokens(200), ForwardRunner(model)
    for length in range(1, 200, 7):
        first, second = runner.step([("a", prompt[:length]), ("b", prompt[: 200 - length])])
        for name in ("a", "b"):
            runner.release(name)
        assert_near(first[-1:], token_by_token[length - 1 : length])
        assert_near(second[-1:], token_by_token[199 - length : 200 - length])


@pytest.mark.parametrize("length", [5, 64, 65, 127, 300])
def test_every_split_point(pair: tuple[Transformers, CausalLM], length: int) -> None:
    theirs, model = pair
    prompt = tokens(length, seed=length)
    whole, states = in_steps(model, prompt, [])
    assert_near(whole, theirs.run(prompt)[0].logits)
    every = range(1, length)
    cuts = every if length <= 65 else sorted({*every[:: length // 20], 63, 64, 65, length - 1})
    for cut in cuts:
        split, cut_states = in_steps(model, prompt, [cut])
        assert_near(split, whole)
        for ours, expected in zip(cut_states.recurrent_states, states.recurrent_states, strict=True):
            assert_near_state(ours[cut_states.running["a"].state_id], expected[states.running["a"].state_id])


def assert_near_state(ours: Tensor, expected: Tensor) -> None:
    assert (ours - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
def test_splits_in_narrow_types_stay_within_a_bound(tmp_path: Path, dtype: torch.dtype, bound: float) -> None:
    """Products of one row and of many may round differently; measured are 0.003 of the range in bf16."""
    _, model = load_tiny(DENSE, tmp_path, dtype)
    prompt = tokens(100)
    whole, states = in_steps(model, prompt, [])
    span = (whole.max() - whole.min()).item()
    for cuts in ([1], [37], [63], [64, 65], list(range(1, 100))):
        split, _ = in_steps(model, prompt, cuts)
        assert (split - whole).abs().max().item() <= bound * span
    assert all(state.dtype == torch.float32 for state in states.recurrent_states)


def test_fp16_is_near_fp32(tmp_path: Path) -> None:
    _, narrow = load_tiny(DENSE, tmp_path, torch.float16)
    wide, _ = load_model(tmp_path, narrow.config, torch.float32, "cpu")
    prompt = tokens(100)
    ours, expected = in_steps(narrow, prompt, [])[0], in_steps(wide, prompt, [])[0]
    assert (ours - expected).abs().max() <= 5e-3 * (expected.max() - expected.min())


def test_states_are_fp32_and_conv_inputs_exact(model: CausalLM) -> None:
    """What a step leaves behind does not depend on how the step was cut, down to the raw conv inputs."""
    prompt = tokens(20)
    _, whole = in_steps(model, prompt, [])
    _, cut = in_steps(model, prompt, [1, 2, 18])
    assert all(states.dtype == torch.float32 for states in whole.recurrent_states)
    first = whole.conv_states[0][whole.running["a"].state_id]
    assert torch.allclose(cut.conv_states[0][cut.running["a"].state_id], first, rtol=1e-5, atol=1e-6)


def snapshot(runner: ForwardRunner) -> list[Tensor]:
    return [t.clone() for t in (*runner.kv_cache, *runner.conv_states, *runner.recurrent_states)]


def same_bits(left: Tensor, right: Tensor) -> bool:
    return torch.equal(left.view(torch.int32), right.view(torch.int32))


@pytest.mark.parametrize("num_rows", [1, 3, 5, 7])
def test_padding_rows_and_requests_change_nothing(model: CausalLM, num_rows: int) -> None:
    """Caches are full of NaN where nothing was written, so a stray read would show; a stray write too."""
    plain, padded = ForwardRunner(model), ForwardRunner(model)
    names = [f"r{i}" for i in range(num_rows)]
    prompts = [(name, tokens(3 + 5 * i, seed=i)) for i, name in enumerate(names)]
    decode = [(name, [11 + i]) for i, name in enumerate(names)]
    for batch in (prompts, decode, decode):
        expected = plain.step(batch)
        ours = padded.step(batch, num_padding_rows=8 - num_rows, pad_requests=8 - num_rows)
        for left, right in zip(ours, expected, strict=True):
            assert left.isfinite().all()
            assert_near(left, right)
    for left, right in zip(snapshot(padded), snapshot(plain), strict=True):
        assert torch.equal(left.isnan(), right.isnan())
        assert torch.allclose(left.nan_to_num(), right.nan_to_num(), rtol=1e-4, atol=1e-5)


def test_a_step_touches_only_its_own_places(model: CausalLM) -> None:
    runner = ForwardRunner(model)
    runner.step([("a", tokens(30)), ("b", tokens(21))])
    before = snapshot(runner)
    runner.step([("b", [4])], num_padding_rows=3, pad_requests=2)
    bystander = runner.running["a"]
    num_kv = len(runner.kv_cache)
    for index, (old, new) in enumerate(zip(before, snapshot(runner), strict=True)):
        if index < num_kv:
            assert same_bits(new[:, [0, *bystander.blocks]], old[:, [0, *bystander.blocks]])
        else:
            assert same_bits(new[[0, bystander.state_id]], old[[0, bystander.state_id]])


def test_a_recycled_state_slot_starts_from_zero(model: CausalLM) -> None:
    runner = ForwardRunner(model, num_states=2)
    prompt = tokens(40)
    first = runner.step([("a", prompt)])[0]
    runner.release("a")
    again = runner.step([("b", prompt)])[0]
    assert torch.equal(again, first)


def test_positions_beyond_the_block_table_are_not_read(model: CausalLM) -> None:
    """Entries past a request's last block may hold anything, also ids that do not exist."""
    runner = ForwardRunner(model)
    expected = runner.step([("a", tokens(5)), ("b", tokens(50))])
    for name in ("a", "b"):
        runner.release(name)
    context, ids = runner.context([("a", tokens(5)), ("b", tokens(50))])
    context.block_tables[0, 1:] = 10**6
    logits = model.compute_logits(model(ids, context))
    assert torch.equal(logits, torch.cat(expected))
