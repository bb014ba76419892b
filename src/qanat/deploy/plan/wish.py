"""What a user has and wants; whatever is left out is chosen by the planner."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec


class Scenario(str, Enum):
    """What the service is for; decides where latency, throughput and context pull apart."""

    BALANCED = "balanced"
    LOW_LATENCY = "low-latency"
    HIGH_THROUGHPUT = "high-throughput"
    LONG_CONTEXT = "long-context"


class Topology(str, Enum):
    """How engines lie over nodes."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"
    """Data parallel over nodes with the mp executor, tensor parallel inside a node."""
    RAY = "ray"
    """One tensor parallel group over nodes, started by Ray."""
    DISAGGREGATED = "pd"
    """Prefill and decode on engines of their own."""


Override = str | int | float | bool | list[Any] | dict[str, Any]
"""A value of a flag; lists and mappings for JSON arguments."""


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is asked of the planner. None leaves the choice to it.

    Sizes are tokens and sequences; `concurrency` counts requests that run at once over the whole service.
    """

    model: str
    """A model's name, its repository, or the path of its weights where the name shows in it."""
    hardware: str
    """A machine or chip, such as atlas-800-a3, A2, 950DT, 310P."""
    weights: str | None = None
    """A variant: bf16, w8a8, w4a8, w8a8-mxfp8, w4a4-mxfp4; a suffix -mtp says that the drafter's weights are in it."""
    scenario: Scenario = Scenario.BALANCED
    image: str | None = None
    """Release, tag or image of vllm-ascend; else the newest stable one that knows model and chip."""
    topology: Topology | None = None
    nodes: int | None = None
    npus_per_node: int | None = None
    """Where a node has more than the service may use, or the chip comes in several sizes."""
    npu_memory_gib: float | None = None
    """Nominal memory of one NPU where the chip comes in several sizes."""
    prefill_nodes: int | None = None
    """Nodes of one prefill instance; with `num_prefill`, `num_decode` and `decode_nodes` for prefill/decode apart."""
    decode_nodes: int | None = None
    num_prefill: int | None = None
    num_decode: int | None = None
    tensor_parallel_size: int | None = None
    data_parallel_size: int | None = None
    decode_tensor_parallel_size: int | None = None
    decode_data_parallel_size: int | None = None
    expert_parallel: bool | None = None
    max_model_len: int | None = None
    concurrency: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    speculation: Literal["auto", "off", "mtp", "eagle3"] = "auto"
    num_speculative_tokens: int | None = None
    draft_model: str | None = None
    prefix_caching: bool | None = None
    language_model_only: bool = False
    connector: str | None = None
    proxy: Literal["qanat", "example"] = "example"
    model_path: str | None = None
    """Where the weights lie on every node; else the repository's name, which the engine downloads."""
    served_model_name: str | None = None
    addresses: tuple[str, ...] = ()
    """One IP address a node, in the order of the plan's nodes."""
    interface: str | None = None
    """Network interface of those addresses, the same on every node."""
    port: int | None = None
    proxy_port: int | None = None
    overrides: dict[str, Override] = {}
    """Flags of `vllm serve` that win over the planner's, by name without dashes; they are checked like its own."""
