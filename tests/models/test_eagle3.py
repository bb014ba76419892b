"""The draft model of EAGLE-3 has the values of its formulas, in both layouts; what does not fit is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from qanat.config.eagle3 import read_eagle3
from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.models.decoder import CausalLM
from qanat.models.eagle3 import Eagle3Model
from qanat.models.eagle3_loader import load_eagle3
from qanat.models.loader import load_model
from tests.models.tiny import FAMILIES, Family, write_checkpoint
from tests.support.eagle3 import (
    HEAD_DIM,
    KV_HEADS,
    LAYOUTS,
    TARGET,
    Reference,
    config_json,
    save_draft,
    write_draft,
)
from tests.support.eagle3 import random_tensors as draft_tensors
from tests.support.forward import ForwardRunner
from tests.support.providers import best_kernels  # noqa: F401

TARGETS = [family for family in FAMILIES if family.name in ("qwen3-tied", "qwen3_moe-fused")]
TAPS = (2, 2, 1)
"""Of a model of four layers: 2, L // 2, L - 3."""
TOKENS = torch.randint(6, 300, (21,), generator=torch.Generator().manual_seed(1)).tolist()

DENSE = ModelConfig.from_dict(TARGET | {"vocab_size": 320})


@pytest.fixture(scope="module", params=TARGETS, ids=str)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[CausalLM, Any]:
    """The same model in Qanat, with taps, and in transformers."""
    folder, family = tmp_path_factory.mktemp("target"), request.param
    assert isinstance(family, Family)
    theirs = write_checkpoint(family, folder, torch.float32)
    config = dataclasses.replace(ModelConfig.from_folder(folder), tapped_layers=TAPS)
    return load_model(folder, config, torch.float32, "cpu")[0], theirs


def draft_for(model: CausalLM, folder: Path) -> Eagle3Model:
    return load_eagle3(read_eagle3(folder, model.config), model, torch.float32, "cpu")


def tapped(model: CausalLM) -> tuple[Tensor, ...]:
    context, ids = ForwardRunner(model).context([("r", TOKENS)])
    return model.forward_tapped(ids, context)[1]


def entries_of(draft: Eagle3Model, target: CausalLM, tokens: list[int], hidden: Tensor) -> Tensor:
    """Rows of the draft in a cache of its own, chunk by chunk."""
    runner = ForwardRunner(target)
    runner.kv_cache = [torch.full((2, 8, 16, KV_HEADS, HEAD_DIM), torch.nan)]
    rows = []
    for start, end in ((0, 7), (7, 8), (8, len(tokens))):
        context, ids = runner.context([("r", tokens[start:end])])
        runner.running["r"].num_computed = end
        context.cos, context.sin = draft.rotary_rows(context.positions)
        rows.append(draft.draft(ids, hidden[start:end], context))
    return torch.cat(rows)


def test_taps_are_what_enters_the_layers(target: tuple[CausalLM, Any]) -> None:
    model, theirs = target
    assert isinstance(theirs, transformers.PreTrainedModel)
    with torch.no_grad():
        states = theirs(input_ids=torch.tensor([TOKENS]), output_hidden_states=True).hidden_states
    found = tapped(model)
    assert len(found) == len(TAPS)
    for own, index in zip(found, TAPS, strict=True):
        torch.testing.assert_close(own, states[index][0], rtol=1e-3, atol=1e-3)
        assert not torch.allclose(own, states[index + 1][0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("draft_vocab_size", [0, 100])
@pytest.mark.parametrize(
    "changes", [{}, {"norm_before_residual": True, "norm_before_fc": True}, {"norm_output": True}]
)
def test_the_formulas(
    target: tuple[CausalLM, Any], layout: str, draft_vocab_size: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    model, _ = target
    tensors = write_draft(tmp_path, model.config, layout, draft_vocab_size, **changes)
    if layout == "flat":  # there the key means the norm before the head, which there always is
        changes = {key: value for key, value in changes.items() if key != "norm_output"}
    draft = draft_for(model, tmp_path)
    size = draft_vocab_size or model.config.vocab_size
    table = model.model.embed_tokens(torch.arange(model.config.vocab_size))
    reference = Reference(tensors, config_json(model.config, layout, size, **changes), table)
    taps = [tap[:-1] for tap in tapped(model)]
    hidden = draft.draft_inputs(torch.empty(0), taps)
    torch.testing.assert_close(hidden, reference.entries(taps), rtol=1e-4, atol=1e-4)
    rows = entries_of(draft, model, TOKENS[1:], hidden)
    expected = reference.rows(torch.tensor(TOKENS[1:]), hidden)
    torch.testing.assert_close(rows, expected, rtol=1e-3, atol=1e-3)
    scores, wanted = draft.draft_logits(rows), reference.scores(expected)
    is_there = wanted[0].isfinite()
    assert int(is_there.sum()) == size
    torch.testing.assert_close(scores[:, is_there], wanted[:, is_there], rtol=1e-3, atol=1e-3)
    assert (scores[:, ~is_there] < -1e29).all() and scores.isfinite().all()


def test_head_and_embedding_come_from_the_target_or_from_the_draft(
    target: tuple[CausalLM, Any], tmp_path: Path
) -> None:
    model, _ = target
    size = model.config.vocab_size
    tensors, config = draft_tensors(model.config, "flat", size), config_json(model.config, "flat", size)
    save_draft(tmp_path / "own", config, tensors | {"embed_tokens.weight": torch.ones(size, 64)})
    own = draft_for(model, tmp_path / "own")
    assert own.embed_tokens is not None
    del tensors["lm_head.weight"]
    save_draft(tmp_path / "lent", config, tensors)
    lent = draft_for(model, tmp_path / "lent")
    rows = torch.randn(3, 64)
    assert torch.equal(lent.draft_logits(rows), model.compute_logits(lent.norm(rows)))
    assert sum(each.numel() for each in lent.parameters()) < sum(each.numel() for each in own.parameters())


def without(name: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.__delitem__(name)


def with_tensor(name: str, tensor: Tensor) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.update({name: tensor})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            without("midlayer.hidden_norm.weight"),
            r"lacks tensor 'midlayer.hidden_norm.weight' of shape \[64\]",
        ),
        (without("d2t"), r"lacks tensor 'd2t' of shape \[100\]"),
        (
            with_tensor("fc.weight", torch.zeros(64, 128)),
            r"'fc.weight' .* shape \[64, 128\], expected \[64, 192\]",
        ),
        (
            with_tensor("midlayer.self_attn.q_norm.weight", torch.ones(16)),
            r"q_norm.weight' .* is not part of",
        ),
        (with_tensor("d2t", torch.full((100,), 300)), "'d2t' .* leads beyond the vocabulary of 320"),
        (with_tensor("d2t", -torch.arange(100)), "'d2t' .* to one token from two entries"),
        (with_tensor("d2t", torch.zeros(100)), "'d2t' .* has type F32, expected I64"),
    ],
)
def test_what_does_not_fit_is_named(
    spoil: Callable[[dict[str, Tensor]], None], message: str, tmp_path: Path
) -> None:
    config = DENSE
    tensors = draft_tensors(config, "flat", 100)
    spoil(tensors)
    save_draft(tmp_path, config_json(config, "flat", 100), tensors)
    with pytest.raises(CheckpointError, match=message):
        load_eagle3(read_eagle3(tmp_path, config), None, torch.float32, "cpu")  # type: ignore[arg-type]  # not reached
