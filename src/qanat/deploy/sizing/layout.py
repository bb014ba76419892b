"""What the memory of one NPU depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qanat.deploy.knowledge.kinds.models import ModelFacts

Drafter = Literal["mtp", "eagle3"]
DEFAULT_HCCL_BUFFER_MIB = 200
"""HCCL_BUFFSIZE where it is not set."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One engine of a role, as far as memory goes.

    Attributes:
        model: its sizes.
        variant: format of the weights (bf16, w8a8, w4a8, w8a8-mxfp8, w4a4-mxfp4; a suffix -mtp is ignored).
        npu_bytes: memory of one NPU that the engine sees, see `chips.visible_bytes`.
        tp: tensor parallel size.
        dp: data parallel size over all nodes.
        expert_parallel: experts lie whole on the NPUs; else every expert is cut over them.
        num_redundant_experts: copies that expert load balancing adds.
        drafter: whose weights and cache are there too; None without speculation.
        num_speculative_tokens: k; 0 without speculation.
        max_model_len: tokens of the longest request.
        max_num_seqs: sequences at once per data parallel rank.
        max_num_batched_tokens: tokens of a step per data parallel rank.
        gpu_memory_utilization: share of the memory that weights, activations and caches may take.
        prefix_caching: on; hybrid models then keep one more state per sequence.
        capture_sizes: graphs that are captured; empty without graphs.
        hccl_buffer_mib: HCCL_BUFFSIZE.
        is_mc2: experts exchange tokens by dispatch and combine on a communicator of their own.
        is_fused_mc2: that exchange and the experts are one operator (fused MC2).
        language_model_only: no vision tower.
        state_element_bytes: 4 for float32 recurrent states, 2 with --mamba-ssm-cache-dtype float16.
        has_full_mask: attention reads a mask of max_model_len squared.
    """

    model: ModelFacts
    variant: str
    npu_bytes: int
    tp: int
    dp: int = 1
    expert_parallel: bool = True
    num_redundant_experts: int = 0
    drafter: Drafter | None = None
    num_speculative_tokens: int = 0
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float = 0.9
    prefix_caching: bool = False
    capture_sizes: tuple[int, ...] = ()
    hccl_buffer_mib: int = DEFAULT_HCCL_BUFFER_MIB
    is_mc2: bool = True
    is_fused_mc2: bool = False
    language_model_only: bool = False
    state_element_bytes: int = 4
    has_full_mask: bool = False

    @property
    def ep(self) -> int:
        """NPUs that the routed experts are spread over, whole or in slices."""
        return self.tp * self.dp if self.model.is_moe else 1

    @property
    def has_vision(self) -> bool:
        """Whether a vision tower is loaded."""
        return self.model.has_vision and not self.language_model_only
