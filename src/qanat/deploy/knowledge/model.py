"""The kinds of entries in the knowledge base.

Files in `data/` hold these as YAML or JSON; `load.py` reads them strictly. Versions are strings as upstream
spells them ("0.18.0rc1"); `versions.py` orders them. A name has a life: `since` is the first sampled version that
has it, `until` the last one; absent means the first and the last sample of the file.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

Confidence = Literal["source", "documentation", "issue", "tested", "computed", "unverified"]
"""How a fact was learnt: read in source at the tag, documented, told in an issue thread, tried, computed, or not
checked at all."""


class Severity(str, Enum):
    """How bad a finding is: `info` asks for nothing, and leaves the exit code at 0."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Consequence(str, Enum):
    """What happens if a finding is left as it is."""

    START_FAILS = "start_fails"
    IGNORED = "ignored"
    SLOWER = "slower"
    WRONG = "wrong"
    RISK = "risk"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every entry has: a name and where the fact comes from. A file may state both once for all entries."""

    name: str
    source: str
    confidence: Confidence


class Lifetime(Entry, frozen=True, kw_only=True):
    """An entry that not every version has; None is the first or the last sample of its file."""

    since: str | None = None
    until: str | None = None


ValueKind = Literal["bool", "int", "float", "text", "list", "json"]


class Flag(Lifetime, frozen=True, kw_only=True):
    """A command line flag of `vllm serve` or `vllm bench`, with its long name ("--max-model-len").

    `alias_since` has the first sampled version of each alias that is younger than its flag; `has_units` says that a
    number may end with a unit ("32k").
    """

    kind: ValueKind = "text"
    aliases: tuple[str, ...] = ()
    alias_since: dict[str, str] = {}
    has_units: bool = False
    choices: tuple[str, ...] = ()
    replacement: str | None = None


class EnvVar(Lifetime, frozen=True, kw_only=True):
    """An environment variable; `owner` is the component that reads it.

    `values` is the domain in words ("0|1|2", "int 120..7200"); `pattern` is a regular expression for the whole
    value where the domain can be checked; `replacement` says what took its place.
    """

    owner: str
    default: str | None = None
    values: str | None = None
    pattern: str | None = None
    replacement: str | None = None


class ConfigKey(Lifetime, frozen=True, kw_only=True):
    """A key inside a JSON argument: `flag` is the argument, `name` the path with dots ("eplb_config.dynamic_eplb").

    `minimum` and `maximum` are the smallest and largest number it takes.
    """

    flag: str
    kind: ValueKind | None = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    replacement: str | None = None


class Rule(Entry, frozen=True, kw_only=True):
    """A rule of the linter: `name` is its id.

    `since` and `until` are vllm-ascend versions, both included; `when`, `effect` and `fix` are one sentence each.
    """

    title: str
    severity: Severity
    consequence: Consequence
    when: str
    effect: str
    fix: str
    since: str | None = None
    until: str | None = None


class Release(Entry, frozen=True, kw_only=True):
    """A release of vllm-ascend (`name` is its version) with what its image ships.

    `python` are the versions of Python it can be installed on, the first that is too new after the comma.
    """

    vllm: str
    date: str
    is_stable: bool = False
    cann: str | None = None
    torch_npu: str | None = None
    mooncake: str | None = None
    python: str | None = None


class Chip(Entry, frozen=True, kw_only=True):
    """An accelerator generation: NPUs of one node, memory of one NPU in GiB, and the suffix of its image tags.

    `first_release` is the first of vllm-ascend that has images for it, where that is later than the first known.
    `needs_host_pids` says that CPU binding in a container works with the host's process ids only;
    `kubernetes_resource` is what the device plugin of Kubernetes calls an NPU.
    """

    family: str
    image_suffix: str
    num_npus_per_node: int
    memory_gib: float
    visible_bytes: dict[int, int]
    spellings: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    needs_host_pids: bool = False
    kubernetes_resource: str = "huawei.com/Ascend910"
    first_release: str | None = None


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


class WeightFormat(Entry, frozen=True, kw_only=True):
    """How a quantised variant stores its weights.

    Attributes:
        expert_bits: of one parameter of a routed expert.
        linear_bits: of one parameter of the other linear layers; router, embeddings and head have 16.
        expert_overhead_percent: what scales add to the routed experts.
        overhead_percent: what scales, biases and unquantised small tensors add to everything else.
        cache_bits: of one element of keys and values.
        families: chips that can run it, empty for all.
    """

    expert_bits: float
    linear_bits: float
    expert_overhead_percent: float = 0
    overhead_percent: float = 0
    cache_bits: int = 16
    families: tuple[str, ...] = ()


class Communicator(Entry, frozen=True, kw_only=True):
    """A group of HCCL that ranks talk in; `buffer_mib` of each of its two buffers, None for HCCL_BUFFSIZE."""

    buffer_mib: int | None = None


class Estimate(Entry, frozen=True, kw_only=True):
    """A number that sizes of memory are guessed with, since nobody publishes or computes it; `unit` says of what."""

    value: float
    unit: str


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
    """

    model: str
    variant: str
    repository: str = ""
    size_gb: float | None = None
    first_release: str | None = None
    has_drafter: bool = False
    nodes: dict[str, int] = {}


class Connector(Lifetime, frozen=True, kw_only=True):
    """A KV connector of disaggregated serving and the example proxy it works with."""

    proxy: str | None = None
    direction: Literal["pull", "push", "pool", "both"]
    hybrid_since: str | None = None
    is_upstream: bool = False


class Parser(Lifetime, frozen=True, kw_only=True):
    """A tool or reasoning parser that fits a model family; `models` is a regular expression for model names."""

    role: Literal["tool", "reasoning"]
    models: str


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One condition of a conflict, on a setting, the role in disaggregated serving, or the kind of model.

    `setting` is a flag, or a key of --additional-config with dots.
    """

    setting: str | None = None
    state: Literal["on", "off", "set"] | None = msgspec.field(default=None, name="is")
    above: int | None = None
    below: int | None = None
    role: Literal["kv_producer", "kv_consumer"] | None = None
    model: Literal["moe", "dense"] | None = None


class Conflict(Lifetime, frozen=True, kw_only=True):
    """Settings that exclude each other: the start is refused where all conditions hold."""

    conditions: tuple[Condition, ...]
    because: str


class Baseline(Entry, frozen=True, kw_only=True):
    """A published figure of a model on a layout.

    Attributes:
        repository: of the weights; `ModelFacts.pattern` finds the model by it.
        weights: the variant.
        chip: name in the table of chips; None where the source does not say.
        measure: output tokens per second over the whole service, or points of accuracy on `dataset`.
        value: in that unit.
        pass_from: the source's own test fails below it.
        tensor_parallel_size: with `data_parallel_size` and `num_speculative_tokens` the layout, None where not said.
        input_tokens: of one request; `shared_prefix_percent` of them are the same in all requests.
        output_tokens: of one request; for accuracy the most it may have.
        concurrency: requests at once.
        request_rate: requests that start per second; None is all at once.
    """

    repository: str
    weights: str
    chip: str | None = None
    measure: Literal["output_tokens_per_s", "accuracy"]
    value: float
    pass_from: float | None = None
    is_disaggregated: bool = False
    tensor_parallel_size: int | None = None
    data_parallel_size: int | None = None
    num_speculative_tokens: int | None = None
    dataset: str | None = None
    input_tokens: int | None = None
    shared_prefix_percent: int = 0
    output_tokens: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None


class KnownPath(Entry, frozen=True, kw_only=True):
    """A path on hosts or in images that scripts use.

    Attributes:
        use: of the host's, what containers mount where it is there; of the image's, a script that sets the
            environment of CANN, an allocator to preload, or the folder of the example proxies.
        families: of chips that have it; empty for all.
    """

    use: Literal["mount", "environment_script", "allocator", "examples"]
    families: tuple[str, ...] = ()


class SourceTree(Entry, frozen=True, kw_only=True):
    """A package that is built from source: `name` on the package index, `environment` for its build."""

    url: str
    environment: dict[str, str] = {}
