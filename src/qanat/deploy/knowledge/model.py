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
    """A command line flag of `vllm serve` or `vllm bench`, with its long name ("--max-model-len")."""

    kind: ValueKind = "text"
    aliases: tuple[str, ...] = ()
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


class LogSignature(Entry, frozen=True, kw_only=True):
    """A line of a log by which a rule's fault is recognised after the fact; `pattern` is a regular expression."""

    pattern: str
    rules: tuple[str, ...]


StartStage = Literal["start", "connect", "load", "profile", "cache", "capture", "engine", "listen", "ready", "serve"]
"""How far the start of a server is, in this order."""


class LogStage(Lifetime, frozen=True, kw_only=True):
    """A line of a log that shows how far the start of a server is.

    `pattern` is a regular expression and `literals` are texts of which it needs one; groups fill the braces of
    `detail` ("{done} of {total} files"). `begins_anew` marks lines that only the first process of a start writes.
    `example` matches, `near_miss` must not.
    """

    stage: StartStage
    pattern: str
    literals: tuple[str, ...]
    example: str
    near_miss: str
    detail: str = ""
    begins_anew: bool = False


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

    `needs_host_pids` says that CPU binding in a container works with the host's process ids only.
    """

    family: str
    image_suffix: str
    num_npus_per_node: int
    memory_gib: float
    spellings: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    needs_host_pids: bool = False


class ModelFacts(Entry, frozen=True, kw_only=True):
    """Sizes of a model that rules compute with; linear attention and expert fields are 0 where there are none."""

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

    @property
    def is_hybrid(self) -> bool:
        """Whether most layers keep a recurrent state instead of keys and values."""
        return self.num_linear_key_heads > 0

    @property
    def is_moe(self) -> bool:
        """Whether the model routes tokens to experts."""
        return self.num_experts > 0


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


class HostCheck(Entry, frozen=True, kw_only=True):
    """A check of `qanat deploy preflight`: `name` is its id; `why` and `fix` are one sentence each."""

    title: str
    why: str
    fix: str


class HostSetting(Entry, frozen=True, kw_only=True):
    """A kernel setting: `name` as sysctl spells it, or the path of its file where sysctl has none.

    `paths` are its files, the newest kernel's last; the value is right if it is equal to, at most, or at least `value`.
    """

    paths: tuple[str, ...]
    is_right_if: Literal["equal", "at_most", "at_least"]
    value: int
    why: str
    fix: str


class Threshold(Entry, frozen=True, kw_only=True):
    """A number that a check compares with, and its unit."""

    value: float
    unit: str
    about: str


class DriverSupport(Entry, frozen=True, kw_only=True):
    """Drivers (HDK) that a series of CANN works with; `name` is the series ("8.5").

    `oldest` is the oldest that is listed for it, `recommended` the oldest that is known to serve graphs well; both
    count for `chips` only, because other chips number their drivers otherwise.
    """

    oldest: str
    recommended: str
    chips: tuple[str, ...]


class KnownPath(Entry, frozen=True, kw_only=True):
    """A path on hosts or in images that scripts use.

    Attributes:
        use: of the host's, what containers mount where it is there; of the image's, a script that sets the
            environment of CANN, an allocator to preload, or the folder of the example proxies.
        chips: for which; empty for all.
    """

    use: Literal["mount", "environment_script", "allocator", "examples"]
    chips: tuple[str, ...] = ()


class DeviceName(Entry, frozen=True, kw_only=True):
    """How npu-smi names a chip: `name` is a regular expression for the whole name, `chip` an entry of the chips."""

    chip: str
