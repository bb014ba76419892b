"""Wishes for what this version does not do: each is refused, or named once with what happens instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qanat.config.binding import without_binding
from qanat.config.engine_config import EngineConfig
from qanat.config.flag_names import flag_of
from qanat.config.known_flags import check_json_keys, known_flags
from qanat.config.nodes import check_nodes
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

LATER = "not yet in this version"

REASONING_PARSERS = ("qwen3",)
"""What there is; `none` switches it off."""

_JSON_FLAGS: Mapping[str, tuple[str, str]] = {
    "additional_config": ("no effect", "these are options of vLLM-Ascend; this version computes on the CPU"),
}
"""What happens instead, and why, for flags with JSON values."""

LOAD_FORMATS_OF_VLLM = (
    "bitsandbytes",
    "fastsafetensors",
    "gguf",
    "hf",
    "instanttensor",
    "mistral",
    "modelexpress",
    "npcache",
    "pt",
    "runai_streamer",
    "runai_streamer_sharded",
    "sharded_state",
    "tensorizer",
)


def decide_unbuilt(wishes: EngineConfig) -> Iterator[Decision]:
    """Decisions on everything that was wished and is not done.

    Raises:
        ConfigError: a wish that cannot be left aside, with the reason.
    """
    yield from _parallelism(wishes)
    yield from _switches(wishes)
    for name, (outcome, why) in _JSON_FLAGS.items():
        value = getattr(wishes, name)
        if name == "additional_config":
            value = without_binding(value) or None
        if value is not None:
            flag = flag_of(name)
            yield Decision(flag, value, outcome, why)
            yield from check_json_keys(flag.removeprefix("--"), value)
    for name, value in wishes.foreign_flags.items():
        decision = known_flags()[name].decide(value)
        if decision is not None:
            yield decision
        if isinstance(value, Mapping):
            yield from check_json_keys(name, value)


def check_refused(wishes: EngineConfig) -> None:
    """Refuses what cannot be left aside; asked before a model is looked for.

    Raises:
        ConfigError: with the flag and the reason.
    """
    for name, value in wishes.foreign_flags.items():
        known_flags()[name].decide(value)
    check_nodes(wishes)
    load_format = wishes.load_format
    if load_format in ("auto", "safetensors", "dummy"):
        return
    known = "is not offered" if load_format in LOAD_FORMATS_OF_VLLM else "is unknown"
    raise ConfigError(
        f"--load-format {load_format} {known}: weights are read from safetensors files (auto, safetensors) or "
        "made at random (dummy); nothing is unpickled.",
        param="--load-format",
    )


def _parallelism(wishes: EngineConfig) -> Iterator[Decision]:
    if wishes.pipeline_parallel_size > 1:
        why = f"{LATER}: one group of ranks computes the whole model"
        yield Decision("--pipeline-parallel-size", wishes.pipeline_parallel_size, 1, why)
    if wishes.enable_expert_parallel:
        why = f"{LATER}: every rank holds a part of each expert"
        yield Decision("--enable-expert-parallel", True, False, why)


def _switches(wishes: EngineConfig) -> Iterator[Decision]:
    if wishes.reasoning_parser not in (None, "none", *REASONING_PARSERS):
        why = "thinking is told by the tags in the model's own vocabulary"
        yield Decision("--reasoning-parser", wishes.reasoning_parser, REASONING_PARSERS[0], why)
    if wishes.trust_remote_code:
        why = "no code from a checkpoint is ever run, and none of the supported models needs any"
        yield Decision("--trust-remote-code", True, "no effect", why)
