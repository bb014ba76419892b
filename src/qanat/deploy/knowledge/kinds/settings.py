"""What an engine can be told: flags, variables, keys of JSON arguments, connectors, parsers, and their conflicts."""

from __future__ import annotations

from typing import Literal

import msgspec

from qanat.deploy.knowledge.entry import Entry, Lifetime

ValueKind = Literal["bool", "int", "float", "text", "list", "json"]


class Flag(Lifetime, frozen=True, kw_only=True):
    """A command line flag of `vllm serve` or `vllm bench`, with its long name ("--max-model-len").

    `alias_since` has the first sampled version of each alias that is younger than its flag; `has_units` says that a
    number may end with a unit ("32k"). `minimum` and `maximum` bound the number, or each number of a list.
    `choices_until` is the newest vLLM whose names were read, where later ones may add some; `plugin` is the flag that
    adds names.
    """

    kind: ValueKind = "text"
    aliases: tuple[str, ...] = ()
    alias_since: dict[str, str] = {}
    has_units: bool = False
    choices: tuple[str, ...] = ()
    choices_until: str | None = None
    plugin: str | None = None
    minimum: float | None = None
    maximum: float | None = None
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


class EngineVariable(Entry, frozen=True, kw_only=True):
    """A variable that engines are given together with another setting.

    Attributes:
        beside: the variable that brings it; None for none.
        executor: the value of --distributed-executor-backend that brings it; None for none.
        value: what it is set to; empty for the address of the node.
        reason: one sentence.
    """

    beside: str | None = None
    executor: str | None = None
    value: str = ""
    reason: str


class ConfigKey(Lifetime, frozen=True, kw_only=True):
    """A key inside a JSON argument: `flag` is the argument, `name` the path with dots ("eplb_config.dynamic_eplb").

    `minimum` and `maximum` are the smallest and largest number it takes, in a list each; `choices_until` is the newest
    vLLM whose choices were read, where later ones may add some.
    """

    flag: str
    kind: ValueKind | None = None
    choices: tuple[str, ...] = ()
    choices_until: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    replacement: str | None = None


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


class Connector(Lifetime, frozen=True, kw_only=True):
    """A KV connector of disaggregated serving and the example proxy it works with."""

    proxy: str | None = None
    direction: Literal["pull", "push", "pool", "both"]
    hybrid_since: str | None = None
    is_upstream: bool = False


class Endpoint(Entry, frozen=True, kw_only=True):
    """A path of the server that answers GET without a body, as probes ask it."""


class Parser(Lifetime, frozen=True, kw_only=True):
    """A tool or reasoning parser that fits a model family; `models` is a regular expression for model names."""

    role: Literal["tool", "reasoning"]
    models: str
