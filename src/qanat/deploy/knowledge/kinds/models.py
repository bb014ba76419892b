"""Models, their published weights, and how those are stored."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.entry import Entry


class ModelFacts(Entry, frozen=True, kw_only=True):
    """Sizes of a model that rules and plans compute with.

    Fields of linear attention, experts, multi token prediction and the vision tower are 0 where there are none.
    `full_attention_interval` says that every so many layers one is attention, 0 that all are; attention of hybrid
    models has an output gate as wide as its queries. `has_tied_embeddings`: input and output share one table.
    """

    pattern: str
    first_release: str
    num_layers: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    num_linear_key_heads: int = 0
    num_linear_value_heads: int = 0
    linear_head_dim: int = 0
    num_experts: int = 0
    num_experts_per_token: int = 0
    has_shared_expert: bool = False
    hidden_size: int = 0
    max_position: int = 0
    has_vision: bool = False
    intermediate_size: int = 0
    expert_intermediate_size: int = 0
    shared_intermediate_size: int = 0
    vocab_size: int = 0
    has_tied_embeddings: bool = False
    linear_conv_kernel: int = 0
    full_attention_interval: int = 0
    num_mtp_layers: int = 0
    vision_layers: int = 0
    vision_hidden_size: int = 0
    vision_intermediate_size: int = 0

    @property
    def num_attention_layers(self) -> int:
        """Layers with keys and values, the drafter's not counted."""
        interval = self.full_attention_interval
        return self.num_layers // interval if interval else self.num_layers

    @property
    def num_linear_layers(self) -> int:
        """Layers with a recurrent state."""
        return self.num_layers - self.num_attention_layers

    @property
    def is_hybrid(self) -> bool:
        """Whether most layers keep a recurrent state instead of keys and values."""
        return self.num_linear_key_heads > 0

    @property
    def is_moe(self) -> bool:
        """Whether the model routes tokens to experts."""
        return self.num_experts > 0


class Weights(Entry, frozen=True, kw_only=True):
    """One variant of a model's weights.

    Attributes:
        model: name of the model.
        variant: name of its format.
        repository: where it is published; empty if it is only known to exist.
        size_gb: decimal gigabytes that documents state; None where nobody does, then it is computed.
        first_release: of vllm-ascend that runs it, where that is later than the model's.
        has_drafter: the weights of multi token prediction are in it.
        nodes: how many nodes of a chip documents ask for.
        tensor_parallel_size: ranks that the checkpoint is cut for; None where any number can load it.
    """

    model: str
    variant: str
    repository: str = ""
    size_gb: float | None = None
    first_release: str | None = None
    has_drafter: bool = False
    nodes: dict[str, int] = {}
    tensor_parallel_size: int | None = None


class WeightFormat(Entry, frozen=True, kw_only=True):
    """How a quantised variant stores its weights.

    Attributes:
        expert_bits: of one parameter of a routed expert.
        linear_bits: of one parameter of the other linear layers; router, embeddings and head have 16.
        expert_overhead_percent: what scales add to the routed experts.
        overhead_percent: what scales, biases and unquantised small tensors add to everything else.
        cache_bits: of one element of keys and values.
        families: chips that can run it.
    """

    expert_bits: float
    linear_bits: float
    expert_overhead_percent: float = 0
    overhead_percent: float = 0
    cache_bits: int = 16
    families: tuple[str, ...] = ()


class QuantisedType(Entry, frozen=True, kw_only=True):
    """A type in a quantisation description: dtypes of the weight, and suffixes of tensors that belong to it."""

    dtypes: tuple[str, ...]
    companions: tuple[str, ...]


class DraftModel(Entry, frozen=True, kw_only=True):
    """A checkpoint that drafts for a model: `name` is its repository, `method` how vLLM calls its kind."""

    model: str
    method: Literal["eagle3"] = "eagle3"
