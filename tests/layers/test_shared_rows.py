"""Layers whose inputs are quantised once, and whose products share calls, give the bits of each on its own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.kernels.native import module
from qanat.kernels.op_trace import OpTrace
from qanat.kernels.providers import choose_providers
from qanat.layers.linear import LinearBase
from qanat.layers.mlp import Experts
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from qanat.platforms.groups import ParallelGroup
from qanat.quant.at_load import OwnScheme
from tests.support.forward import ForwardRunner
from tests.support.rank_threads import on_ranks
from tests.worker.tiny_model import _COMMON, _DELTA_NET, _EXPERTS

WIDE = {"linear_value_head_dim": 32, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
MODELS = {
    name: ModelConfig.from_dict({"architectures": [architecture], **_COMMON, **more})
    for name, architecture, more in (
        ("qwen3", "Qwen3ForCausalLM", {}),
        ("qwen3_5", "Qwen3_5ForCausalLM", {**_DELTA_NET, **WIDE}),
        ("qwen3_5_moe", "Qwen3_5MoeForCausalLM", {**_DELTA_NET, **_EXPERTS, **WIDE}),
        ("qwen3_moe", "Qwen3MoeForCausalLM", _EXPERTS),
    )
}
SHARED = ("share_rows", "shared_add_rms_norm", "shared_swiglu", "linears")


@pytest.fixture(autouse=True)
def _native_kernels(reference_kernels: None) -> None:
    if not module.is_built():
        pytest.skip(module.why_not())
    choose_providers(2)


@dataclass
class Passes:
    """What some steps gave, and how often each op was called in them."""

    logits: list[Tensor]
    calls: dict[str, int]


def run(model: CausalLM, num_ranks: int = 1) -> Passes:
    """Two prompts, the longer one in pieces, then single tokens of both."""
    runner, trace = ForwardRunner(model, num_ranks=num_ranks), OpTrace()
    logits = []
    if num_ranks == 1:
        trace.start()
    try:
        for batch in (
            [("a", range(9)), ("b", [7])],
            [("a", [3, 1, 4]), ("b", [5])],
            [("b", [9]), ("a", [2])],
        ):
            logits += runner.step(batch)
    finally:
        trace.stop()
    calls: dict[str, int] = {}
    for call in trace.calls:
        calls[call.op] = calls.get(call.op, 0) + 1
    return Passes(logits, calls)


def watched(model: CausalLM) -> CausalLM:
    """The same model with a hook on each product, which is then called by itself and quantises for itself."""
    for each in model.modules():
        if isinstance(each, LinearBase | Experts):
            each.register_forward_pre_hook(lambda layer, given: None)
    return model


def load(name: str, scheme: str, dtype: torch.dtype, group: ParallelGroup | None = None) -> CausalLM:
    return load_dummy(MODELS[name], dtype, seed=4, group=group, scheme=OwnScheme(scheme) if scheme else None)


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8", ""])
@pytest.mark.parametrize("name", list(MODELS))
def test_shared_rows_give_the_bits_of_rows_that_are_not(name: str, scheme: str) -> None:
    dtype = torch.float32 if name == "qwen3" else torch.bfloat16
    shared, apart = run(load(name, scheme, dtype)), run(watched(load(name, scheme, dtype)))
    for one, other in zip(shared.logits, apart.logits, strict=True):
        assert torch.equal(one, other)
    expected = SHARED if scheme else ("linears",)
    if "moe" in name:
        expected = tuple(op for op in expected if op != "shared_swiglu")
    assert {op for op in SHARED if op in shared.calls} == set(expected)
    assert not any(op in apart.calls for op in (*SHARED, "moe_mixture"))
    assert ("moe_mixture" in shared.calls) == ("moe" in name)
    assert "moe_combine" not in shared.calls
    assert ("shared_gated_rms_norm" in shared.calls) == (bool(scheme) and "qwen3_5" in name)


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_ranks_give_the_bits_of_rows_that_are_not_shared(scheme: str) -> None:
    def work(group: ParallelGroup) -> tuple[Passes, Passes]:
        shared = run(load("qwen3_5_moe", scheme, torch.bfloat16, group), num_ranks=2)
        return shared, run(watched(load("qwen3_5_moe", scheme, torch.bfloat16, group)), num_ranks=2)

    for shared, apart in on_ranks(2, work):
        for one, other in zip(shared.logits, apart.logits, strict=True):
            assert torch.equal(one, other)
