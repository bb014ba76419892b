"""Drafts of an EAGLE-3 model are those of its formulas, however the tokens came, and change no output."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from qanat.cache.prefix_cache import PrefixRules
from qanat.config.eagle3 import read_eagle3
from qanat.config.graphs import GraphSettings
from qanat.config.model_config import ModelConfig
from qanat.kernels.native import module
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from qanat.models.eagle3 import Eagle3Model
from qanat.models.eagle3_loader import load_eagle3
from qanat.models.loader import load_model
from tests.support.drafting import GRAPHS, GREEDY, Recorded, requests_of, speculate
from tests.support.eagle3 import (
    TARGET,
    Reference,
    config_json,
    write_draft,
    write_echo,
    write_forgetful_target,
)
from tests.support.forward import ForwardRunner
from tests.support.providers import best_kernels  # noqa: F401
from tests.support.speculating import Answers, run
from tests.worker.tiny_model import CONFIGS, VOCAB_SIZE

RAW = TARGET | {"vocab_size": VOCAB_SIZE}
MOE = ModelConfig.from_dict(
    RAW
    | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    }
)
TARGETS = {"qwen3": CONFIGS["qwen3"], "qwen3_moe": MOE, "qwen3_5": CONFIGS["qwen3_5"]}
NUM_HOLES = 1
"""Position 0 has no entry, see docs/speculative-decoding.md."""
SAMPLED = {"temperature": 1.0, "logprobs": 2, "top_k": 30, "presence_penalty": 0.3}

Pair = tuple[CausalLM, Eagle3Model]


def with_draft(config: ModelConfig, folder: Path) -> ModelConfig:
    eagle3 = read_eagle3(folder, config)
    return dataclasses.replace(config, draft_layer=eagle3.layer, tapped_layers=eagle3.tapped_layers)


def checked(answers: Answers, model: CausalLM, requests: list[tuple[str, int, int]], **settings: Any) -> None:
    """Output is that of plain decoding, log-probabilities to the last bit."""
    assert answers.comparable() == run(model, requests_of(requests, **settings)).comparable()


@pytest.fixture(
    scope="module", params=["qwen3", "qwen3_moe", pytest.param("qwen3_5", marks=pytest.mark.slow)]
)
def random_pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[CausalLM, Eagle3Model, Reference]:
    """A model, a random draft of a reduced vocabulary, and what it should draft."""
    folder, config = tmp_path_factory.mktemp("draft"), TARGETS[request.param]
    tensors = write_draft(folder, config, "flat", 70)
    model = load_dummy(with_draft(config, folder), torch.float32, seed=3)
    draft = load_eagle3(read_eagle3(folder, config), model, torch.float32, "cpu")
    table = model.model.embed_tokens(torch.arange(VOCAB_SIZE))
    return model, draft, Reference(tensors, config_json(config, "flat", 70), table)


@pytest.fixture(scope="module")
def knowing_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model that forgets, and a draft that is mostly right."""
    folder = tmp_path_factory.mktemp("pair")
    config = ModelConfig.from_dict(RAW)
    write_echo(folder / "draft", config, write_forgetful_target(folder / "target", RAW))
    config = with_draft(config, folder / "draft")
    model = load_model(folder / "target", config, torch.float32, "cpu")[0]
    return model, load_eagle3(read_eagle3(folder / "draft", config), model, torch.float32, "cpu")


def check(model: CausalLM, reference: Reference, recorded: Recorded, every: int) -> None:
    assert recorded.drafts
    for tokens, drafts in recorded.drafts[::every]:
        context, ids = ForwardRunner(model).context([("r", tokens)])
        taps = [tap[:-1] for tap in model.forward_tapped(ids, context)[1]]
        assert drafts == reference.drafts(tokens, taps, len(drafts), NUM_HOLES)


@pytest.mark.parametrize("graphs", [None, GRAPHS], ids=["eager", "graphs"])
def test_drafts_are_those_of_the_formulas(
    random_pair: tuple[CausalLM, Eagle3Model, Reference], graphs: GraphSettings | None
) -> None:
    """Prompts are computed in parts, beside requests that decode."""
    if graphs is not None and not module.is_built():
        pytest.skip(module.why_not())
    model, draft, reference = random_pair
    requests = [("a", 1, 30), ("b", 5, 25), ("c", 70, 20), ("d", 33, 20)]
    answers, recorded = speculate(model, requests, graphs, draft, max_num_batched_tokens=48)
    checked(answers, model, requests, **GREEDY)
    check(model, reference, recorded, 7)


def test_a_resumed_request_drafts_as_before(random_pair: tuple[CausalLM, Eagle3Model, Reference]) -> None:
    model, draft, reference = random_pair
    requests = [("a", 20, 40), ("b", 9, 40)]
    answers, recorded = speculate(model, requests, None, draft, preempt_at={"a": 12})
    checked(answers, model, requests, **GREEDY)
    check(model, reference, recorded, 9)


def test_drafts_behind_a_prefix_hit_are_as_without_it(
    random_pair: tuple[CausalLM, Eagle3Model, Reference],
) -> None:
    """Blocks of a model without recurrent layers bring the row before the next token, those of outputs too."""
    model, draft, reference = random_pair
    if model.config.is_hybrid:
        pytest.skip("its states bring the row")
    requests = [("a", 70, 60), ("b", 70, 40)]  # the same prompt, the second one behind the first
    answers, recorded = speculate(
        model, requests, None, draft, prefixes=PrefixRules(), preempt_at={"a": 45}, max_num_batched_tokens=48
    )
    checked(answers, model, requests, **GREEDY)
    assert answers.ends["b"].num_cached_tokens == 64
    check(model, reference, recorded, 1)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("graphs", [None, GRAPHS], ids=["eager", "graphs"])
def test_right_drafts_count_and_change_nothing(
    knowing_pair: Pair, settings: dict[str, Any], graphs: GraphSettings | None
) -> None:
    if graphs is not None and not module.is_built():
        pytest.skip(module.why_not())
    model, draft = knowing_pair
    requests = [("a", 3, 40), ("b", 40, 30), ("c", 17, 35)]
    answers, _ = speculate(
        model, requests, graphs, draft, settings=settings, preempt_at={"b": 9}, max_num_batched_tokens=24
    )
    checked(answers, model, requests, **settings)
    num_drafted = sum(end.num_drafted for end in answers.ends.values())
    num_accepted = sum(end.num_accepted for end in answers.ends.values())
    assert 0.3 * num_drafted < num_accepted
