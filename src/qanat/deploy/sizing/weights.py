"""Bytes of weights: of a whole model, and of the NPU that holds most."""

from __future__ import annotations

import math

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.models import ModelFacts, WeightFormat
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.sizing import parameters
from qanat.deploy.sizing.layout import Drafter, Layout

_SUFFIXES = ("-mtp", "-quarot")


def weight_format(variant: str, knowledge: Knowledge | None = None) -> WeightFormat:
    """The format a variant's name says; case and the suffixes -mtp and -QuaRot do not matter.

    Raises:
        ConfigError: the name is not known; lists those that are.
    """
    formats = (knowledge or load_knowledge()).weight_formats
    name = variant.lower()
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if name not in formats:
        raise ConfigError(f"Weights {variant!r} are not known. Known: {', '.join(sorted(formats))}.")
    return formats[name]


def total_weight_bytes(
    model: ModelFacts, variant: str, with_mtp: bool = True, with_vision: bool = False
) -> int:
    """Bytes of a checkpoint, each parameter once."""
    kind = weight_format(variant)
    counts = parameters.parameters_of(model)
    experts, router = counts.routed_experts, counts.router
    linears = counts.shared_experts + counts.dense_mlp + counts.linear_attention + counts.attention
    if with_mtp and model.num_mtp_layers:
        mtp_experts = model.num_mtp_layers * parameters.routed_experts(model)
        mtp_router = model.num_mtp_layers * parameters.router(model)
        experts, router = experts + mtp_experts, router + mtp_router
        linears += counts.mtp - mtp_experts - mtp_router
    total = _bytes(kind, experts, linears, router + counts.embeddings)
    return total + (2 * parameters.vision_tower(model, 1) if with_vision else 0)


def weight_bytes(
    model: ModelFacts,
    variant: str,
    tp: int,
    ep: int,
    drafter: Drafter | None = None,
    with_vision: bool = False,
    num_redundant_experts: int = 0,
    expert_parallel: bool = True,
) -> int:
    """Bytes of weights on the NPU that holds most of them.

    Routed experts are spread over `ep` NPUs, whole or (without expert parallelism) in slices; everything else is cut
    over `tp`, but gates of experts and, beyond their number, heads of keys and values are on every NPU.

    Args:
        model: its sizes.
        variant: format of the weights, see `weight_format`.
        tp: tensor parallel size.
        ep: NPUs that the experts lie on: tensor times data parallel size.
        drafter: whose weights are loaded too.
        with_vision: the vision tower is loaded.
        num_redundant_experts: copies that expert load balancing adds.
        expert_parallel: experts lie whole on the NPUs, not in slices.
    """
    kind = weight_format(variant)
    has_mtp = drafter == "mtp" and model.num_mtp_layers > 0
    num_extra = model.num_mtp_layers if has_mtp else 0
    num_mlps = model.num_layers + num_extra
    num_experts = model.num_experts + num_redundant_experts
    share = math.ceil(num_experts / ep) if expert_parallel else num_experts / ep
    experts = num_mlps * math.ceil(share * parameters.one_expert(model))
    linears = num_mlps * math.ceil((parameters.shared_expert(model) + parameters.dense_mlp(model)) / tp)
    linears += (model.num_attention_layers + num_extra) * parameters.attention(model, tp)
    linears += model.num_linear_layers * parameters.linear_attention(model, tp)
    linears += num_extra * math.ceil(2 * model.hidden_size**2 / tp)
    whole = num_mlps * parameters.router(model) + parameters.embeddings(model, tp)
    total = _bytes(kind, experts, linears, whole)
    if drafter == "eagle3":
        total += 2 * parameters.eagle3_draft(model, tp)
    return total + (2 * parameters.vision_tower(model, tp) if with_vision else 0)


def weight_bytes_of(layout: Layout) -> int:
    """`weight_bytes` of a layout."""
    return weight_bytes(
        layout.model,
        layout.variant,
        layout.tp,
        layout.ep,
        layout.drafter,
        layout.has_vision,
        layout.num_redundant_experts,
        layout.expert_parallel,
    )


def _bytes(kind: WeightFormat, experts: int, linears: int, whole: int) -> int:
    """Bytes of parameters of routed experts, of other linear layers, and of what stays at 16 bits."""
    rest = linears * kind.linear_bits / 8 + whole * 2
    return math.ceil(
        experts * kind.expert_bits / 8 * (1 + kind.expert_overhead_percent / 100)
        + rest * (1 + kind.overhead_percent / 100)
    )
