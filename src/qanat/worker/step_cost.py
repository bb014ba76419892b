"""What a step cannot do without: bytes read and multiply-adds, from the shapes alone. Limits are computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from qanat.config.env import wanted_instruction_set
from qanat.config.model_config import ModelConfig
from qanat.config.resolved import ResolvedConfig
from qanat.core.memory_plan import MemoryPlan
from qanat.kernels.providers import stored_bytes
from qanat.layers.linear import Embedding, LinearBase, LogitsHead
from qanat.layers.mlp import Experts
from qanat.models.decoder import MTP
from qanat.models.quantised import scheme_without_weights
from qanat.models.registry import build_model
from qanat.models.units import load_units
from qanat.worker.cache_tensors import DTYPES

INTEGER_KINDS = ("int8", "int4")
"""Stored so, a matrix is multiplied in integers."""
MACS_OF_STATE = 3.0
"""Multiply-adds of the delta rule for each value of a state and row: error, update, result."""


@dataclass(frozen=True)
class StepShape:
    """The rows of a step.

    Attributes:
        num_requests: that take part.
        num_rows: of each.
        context_len: tokens of each that its last row looks back at, itself included.
    """

    num_requests: int
    num_rows: int
    context_len: int

    @property
    def total_rows(self) -> int:
        """Rows of all requests."""
        return self.num_requests * self.num_rows


@dataclass
class StepCost:
    """Of one rank.

    Attributes:
        weight_bytes: parameters that the step reads, experts by how many distinct ones it is expected to choose.
        state_bytes: recurrent states, read and written.
        kv_bytes: keys and values read.
        float_macs: multiply-adds in floating point, attention and recurrence included.
        int8_macs: multiply-adds of matrices that are stored as integers.
    """

    weight_bytes: float = 0.0
    state_bytes: float = 0.0
    kv_bytes: float = 0.0
    float_macs: float = 0.0
    int8_macs: float = 0.0

    @property
    def total_bytes(self) -> float:
        """Everything that memory must deliver."""
        return self.weight_bytes + self.state_bytes + self.kv_bytes


def distinct_share(num_experts: int, top_k: int, num_rows: int) -> float:
    """Share of the experts that so many rows choose at least once, if each row chooses evenly."""
    return 1.0 - (1.0 - top_k / num_experts) ** num_rows


def step_cost(config: ResolvedConfig, memory: MemoryPlan, step: StepShape) -> StepCost:
    """What a step of this shape costs with these settings.

    Args:
        config: the resolved configuration of an engine with one rank.
        memory: its memory plan.
        step: the rows.
    """
    scheme = None
    if config.quantization:
        scheme = scheme_without_weights(config.quantization, Path(config.model_path), config.model)
    model = build_model(config.model, DTYPES[config.dtype], "meta", scheme=scheme)
    cost = StepCost(
        state_bytes=2.0 * step.num_requests * memory.state_bytes,
        kv_bytes=step.num_requests * step.context_len * memory.block_bytes / memory.block_size,
        float_macs=_mixer_macs(config.model, step),
    )
    for unit in load_units(model):
        if unit.name.startswith(MTP):
            continue  # drafting is no part of the step
        if unit.module is None:
            cost.weight_bytes += sum(parameter.nbytes for parameter in unit.parameters.values())
        else:
            _add_matrices(cost, unit.module, config.model, step)
    return cost


def _add_matrices(cost: StepCost, module: nn.Module, model: ModelConfig, step: StepShape) -> None:
    """Adds what one layer's matrices cost."""
    wanted, moe = wanted_instruction_set(), model.moe
    if isinstance(module, Embedding) and not module.is_head:
        return  # of a table that is no head, only the rows' own entries are read
    share_read = 1.0
    if isinstance(module, Experts) and moe is not None:
        share_read = distinct_share(moe.num_experts, moe.top_k, step.total_rows)

    def measure(matrix: Tensor) -> int:
        return stored_bytes(matrix, wanted)

    kinds = list(module.method.kinds(module, measure))  # type: ignore[union-attr, operator]  # as in `load_units`
    cost.weight_bytes += share_read * sum(kind.size_bytes for kind in kinds)
    macs = _macs(module, model, step)
    if kinds and all(kind.stored in INTEGER_KINDS for kind in kinds):
        cost.int8_macs += macs
    else:
        cost.float_macs += macs


def _macs(module: nn.Module, model: ModelConfig, step: StepShape) -> float:
    """Multiply-adds of a layer's matrices; scores are computed for each request's last row only."""
    if isinstance(module, Experts):
        sizes, top_k = module.sizes, model.moe.top_k if model.moe is not None else 0
        return 3.0 * top_k * sizes.hidden_size * sizes.intermediate_size * step.total_rows
    if isinstance(module, Embedding):
        return float(model.vocab_size * model.hidden_size * step.num_requests)
    assert isinstance(module, LinearBase), "layers with a method are these"
    rows = step.num_requests if isinstance(module, LogitsHead) else step.total_rows
    return float(module.sizes.num_inputs * module.sizes.num_outputs * rows)


def _mixer_macs(model: ModelConfig, step: StepShape) -> float:
    """Of attention (scores and values) and of the delta rule."""
    seen = step.context_len - (step.num_rows - 1) / 2
    attention = model.num_full_attention_layers * model.num_attention_heads * model.head_dim * 2 * seen
    delta = 0.0
    if model.gdn is not None:
        state = model.gdn.num_value_heads * model.gdn.key_head_dim * model.gdn.value_head_dim
        delta = model.num_linear_attention_layers * state * MACS_OF_STATE
    return (attention + delta) * step.total_rows
