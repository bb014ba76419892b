"""Buffers of HCCL: what communicators take on a rank, and the HCCL_BUFFSIZE that experts need."""

from __future__ import annotations

import math

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.sizing.capture import mc2_buffer_mib
from qanat.deploy.sizing.layout import DEFAULT_HCCL_BUFFER_MIB, Layout

MIB = 2**20
_STEP_MIB = 64
_SPARE = 1.1
"""The formula follows the operator's check; a tenth more keeps clear of its edge."""


def uses_mc2(chip: Chip, model: ModelFacts, num_npus: int) -> bool:
    """Whether whole experts over so many NPUs exchange tokens by dispatch and combine.

    Source: `ascend_forward_context.py` of vllm-ascend; the numbers are facts of the chip.
    """
    if not model.is_moe or chip.mc2_least_npus is None or num_npus < chip.mc2_least_npus:
        return False
    return chip.mc2_most_experts is None or model.num_experts // num_npus <= chip.mc2_most_experts


def communicator_buffers(layout: Layout, knowledge: Knowledge) -> dict[str, int]:
    """MiB of one buffer of each communicator that a rank is in; each communicator has two.

    A single NPU has none. Pipeline and context parallelism are not counted: no model here is served with them.
    """
    exchanges = layout.model.is_moe and layout.ep > 1
    is_there = {
        "world": layout.tp * layout.dp > 1,
        "tp": layout.tp > 1,
        "dp": layout.dp > 1,
        "ep": exchanges,
        "mc2": exchanges and layout.expert_parallel and layout.is_mc2,
        "eplb": exchanges and layout.num_redundant_experts > 0,
    }
    return {
        name: layout.hccl_buffer_mib if entry.buffer_mib is None else entry.buffer_mib
        for name, entry in knowledge.communicators.items()
        if is_there[name]
    }


def communicator_bytes(layout: Layout, knowledge: Knowledge) -> int:
    """Bytes of all communicators of a rank."""
    return 2 * MIB * sum(communicator_buffers(layout, knowledge).values())


def mc2_need_mib(layout: Layout) -> float:
    """MiB that exchange of tokens between experts needs in the buffer; 0 where experts do not exchange.

    Dispatch and combine see as many tokens per rank as the largest captured step has, shared by the tensor parallel
    ranks; the fused operator handles every step and takes tokens x experts per token x hidden size x 3 plus 10 MB.
    """
    return max(dispatch_need_mib(layout), fused_need_mib(layout))


def _exchanges(layout: Layout) -> bool:
    return layout.model.is_moe and layout.ep > 1 and layout.expert_parallel and layout.is_mc2


def dispatch_need_mib(layout: Layout) -> float:
    """MiB that dispatch and combine need for the largest captured step; 0 where experts do not exchange."""
    model = layout.model
    if not _exchanges(layout):
        return 0.0
    largest = max(layout.capture_sizes, default=layout.max_num_seqs * (1 + layout.num_speculative_tokens))
    rows = math.ceil(largest / layout.tp)
    shared = int(model.has_shared_expert)
    return mc2_buffer_mib(
        model.hidden_size, model.num_experts, model.num_experts_per_token, shared, layout.ep, rows
    )


def fused_need_mib(layout: Layout) -> float:
    """MiB that the fused operator needs for the largest step; 0 without it."""
    if not (layout.is_fused_mc2 and _exchanges(layout)):
        return 0.0
    tokens = math.ceil(layout.max_num_batched_tokens / layout.tp)
    return (tokens * layout.model.num_experts_per_token * layout.model.hidden_size * 3 + 10_000_000) / MIB


def recommended_buffer_mib(layout: Layout) -> int:
    """HCCL_BUFFSIZE for a layout: its need and a tenth, in steps of 64, at least the default of 200."""
    need = mc2_need_mib(layout) * _SPARE
    return max(DEFAULT_HCCL_BUFFER_MIB, math.ceil(need / _STEP_MIB) * _STEP_MIB)
