"""Which bits ranks of a model with experts share with one rank: all but those that the sum of experts brings in."""

from __future__ import annotations

import pytest
import qanat_demo
import torch
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.kernels.native.module import is_built
from qanat.layers.mlp import MoeMLP
from qanat.models.decoder import CausalLM
from qanat.models.loader import load_model
from qanat.platforms.groups import ParallelGroup
from tests.support.forward import ForwardRunner
from tests.support.rank_threads import on_ranks

DEMO = ModelConfig.from_folder(qanat_demo.model_path())
PROMPT = list(range(40, 77))
NUM_STEPS = 2


def demo(quantization: str, group: ParallelGroup | None = None) -> CausalLM:
    return load_model(
        qanat_demo.model_path(), DEMO, torch.bfloat16, "cpu", group=group, quantization=quantization
    )[0]


def logits(model: CausalLM, num_ranks: int) -> Tensor:
    """Those of a prompt in two pieces and of a few tokens behind it."""
    runner = ForwardRunner(model, num_ranks=num_ranks)
    steps = [PROMPT[:25], PROMPT[25:], *([token] for token in range(NUM_STEPS))]
    return torch.cat([runner.step([("a", tokens)])[0] for tokens in steps])


@pytest.mark.skipif(not is_built(), reason="the references do not cut sums into segments (rule R12)")
@pytest.mark.parametrize(
    ("quantization", "size"), [("", 2), ("w8a8", 4), pytest.param("w4a8", 2, marks=pytest.mark.slow)]
)
def test_ranks_of_the_demo_have_the_bits_of_one_but_for_the_sum_of_experts(
    quantization: str, size: int
) -> None:
    """Ranks that hold whole experts, as one rank does, say exactly what it says; all else they share."""
    whole = demo(quantization)
    expected = logits(whole, 1)

    def shared(group: ParallelGroup) -> Tensor:
        model = demo(quantization, group)
        for own, same in zip(model.model.layers, whole.model.layers, strict=True):
            assert isinstance(same.mlp, MoeMLP)
            own.mlp = same.mlp
        return logits(model, group.size)

    assert all(torch.equal(each, expected) for each in on_ranks(size, shared))
