"""A step as a graph, whole or in pieces, gives the bits of an eager one, in logits and in every cache."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import qanat_demo
import torch
from torch import Tensor

from qanat.config.graphs import GraphSettings
from qanat.config.model_config import ModelConfig
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from qanat.models.loader import load_model
from qanat.quant.at_load import OwnScheme
from qanat.worker import model_runner
from qanat.worker.row_state import RowState
from tests.worker.driver import Driver, random_prompt
from tests.worker.tiny_model import _COMMON, _DELTA_NET, _EXPERTS, CONFIGS

SIZES = (1, 2, 4, 8, 16)
MODES = ["PIECEWISE", "FULL_DECODE_ONLY", "FULL", "FULL_AND_PIECEWISE"]
MODELS: dict[str, ModelConfig] = {
    **CONFIGS,
    "qwen3_moe": ModelConfig.from_dict({"architectures": ["Qwen3MoeForCausalLM"], **_COMMON, **_EXPERTS}),
    "qwen3_5-tied": ModelConfig.from_dict(
        {"architectures": ["Qwen3_5ForCausalLM"], **_COMMON, **_DELTA_NET, "tie_word_embeddings": True}
    ),
}


@cache
def model_of(name: str, dtype: torch.dtype) -> CausalLM:
    return load_dummy(MODELS[name], dtype, seed=5)


@cache
def demo_model() -> CausalLM:
    folder = Path(qanat_demo.model_path())
    return load_model(folder, ModelConfig.from_folder(folder), torch.bfloat16, "cpu")[0]


class Played:
    """What a run left: tokens and logits of each step, and every byte of the caches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: CausalLM, mode: str, seed: int) -> None:
        self.logits: list[Tensor] = []
        self.kinds: list[str] = []
        sample = model_runner.sample_tokens

        def keep(logits: Tensor, rows: list[RowState], num_valid: int, *args: Any) -> list[int]:
            self.logits.append(logits[: len(rows), :num_valid].clone())
            return sample(logits, rows, num_valid, *args)

        monkeypatch.setattr(model_runner, "sample_tokens", keep)
        graphs = GraphSettings(mode, SIZES) if mode != "NONE" else None
        self.driver = Driver(model=model, graphs=graphs, num_valid_token_ids=model.config.vocab_size - 3)
        self.tokens = self._play(random.Random(seed))
        monkeypatch.setattr(model_runner, "sample_tokens", sample)
        stored = self.driver.cache
        self.caches = [
            tensor.view(torch.uint8)
            for tensor in [*stored.kv_blocks, *stored.conv_states, *stored.recurrent_states]
        ]

    def _play(self, chance: random.Random) -> list[dict[str, list[int]]]:
        """Rows join until there are nine, pause, are preempted and resumed, and leave, one or more a step."""
        driver, answers = self.driver, []
        for step in range(24):
            for _ in range(chance.randint(0, 2)):
                if driver.free_rows and step < 18:
                    driver.add(f"r{step}.{len(driver.free_rows)}", random_prompt(chance.randint(1, 20), step))
            picked = [name for name in driver.running if chance.random() < 0.9]
            work = {name: chance.randint(1, driver.running[name].num_missing) for name in picked}
            if work:
                output = driver.step(work)
                answers.append({name: row.token_ids for name, row in output.items()})
                self.kinds.append(driver.uses[-1].kind)
            for name in list(driver.running):
                request = driver.running[name]
                if len(request.output) > 9:
                    driver.release(name)
                elif request.output and chance.random() < 0.04:
                    prompt = request.tokens[: request.new_row.num_prompt_tokens]
                    output_so_far = driver.release(name).output
                    driver.add(name, prompt, output_so_far)
        return answers

    def assert_same(self, other: Played) -> None:
        assert self.tokens == other.tokens
        assert len(self.logits) == len(other.logits)
        for mine, theirs in zip(self.logits, other.logits, strict=True):
            assert torch.equal(mine, theirs)
        for mine, theirs in zip(self.caches, other.caches, strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_mode_gives_the_bits_of_eager_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = torch.bfloat16 if name == "qwen3_5_moe" else torch.float32
    model = model_of(name, dtype)
    eager = Played(monkeypatch, model, "NONE", seed=1)
    assert set(eager.kinds) == {"eager"}
    for mode in MODES:
        played = Played(monkeypatch, model, mode, seed=1)
        played.assert_same(eager)
        kinds = set(played.kinds) - {"eager"}
        assert kinds == {kind for kind in ("full", "piecewise") if kind.upper() in mode.split("_")}


def test_the_demo_model_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = Played(monkeypatch, demo_model(), "NONE", seed=2)
    for mode in ("PIECEWISE", "FULL_DECODE_ONLY"):
        Played(monkeypatch, demo_model(), mode, seed=2).assert_same(eager)


def test_quantised_rows_lie_in_graphs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of a quantised model, its embedding too, runs without a call from Python."""
    model = load_dummy(MODELS["qwen3_5_moe"], torch.bfloat16, seed=5, scheme=OwnScheme("w8a8"))
    eager = Played(monkeypatch, model, "NONE", seed=4)
    Played(monkeypatch, model, "PIECEWISE", seed=4).assert_same(eager)
    full = Played(monkeypatch, model, "FULL_DECODE_ONLY", seed=4)
    full.assert_same(eager)
    captured = [each for each in full.driver.runner._passes._captured.values() if each is not None]
    assert captured and all(not each.graph.host_nodes for each in captured)  # type: ignore[attr-defined]


@pytest.mark.parametrize("changed", [{"head_dim": 24}, {"linear_conv_kernel_dim": 9}])
def test_ops_outside_the_pieces_may_be_left_to_the_reference(
    changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their native functions hand such shapes on: a call from Python within a call from Python."""
    shape = {"architectures": ["Qwen3_5ForCausalLM"], **_COMMON, **_DELTA_NET, **changed}
    model = load_dummy(ModelConfig.from_dict(shape), torch.float32, seed=5)
    eager = Played(monkeypatch, model, "NONE", seed=3)
    played = Played(monkeypatch, model, "PIECEWISE", seed=3)
    played.assert_same(eager)
    assert "piecewise" in played.kinds
