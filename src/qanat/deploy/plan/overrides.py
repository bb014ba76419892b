"""Flags that the user insists on: those that shape the plan go into the wish, the others over its flags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from qanat.config.flag_names import flag_of
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.wish import Wish

FIELDS = {
    "tensor-parallel-size": "tensor_parallel_size",
    "data-parallel-size": "data_parallel_size",
    "max-model-len": "max_model_len",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "enable-prefix-caching": "prefix_caching",
    "enable-expert-parallel": "expert_parallel",
    "served-model-name": "served_model_name",
    "port": "port",
    "language-model-only": "language_model_only",
}
"""Flags that are fields of a wish under another name."""
OWN = (
    "api-server-count",
    "data-parallel-address",
    "data-parallel-rpc-port",
    "data-parallel-size-local",
    "data-parallel-start-rank",
    "headless",
    "model",
    "nnodes",
    "node-rank",
    "master-addr",
    "kv-transfer-config",
    "speculative-config",
)
"""Flags that differ between nodes or roles, or that fields of a wish decide; an override would break them."""
REFUSED = {
    "host": "engines listen on 0.0.0.0, because scripts, checks and other nodes reach them by the node's address",
    "api-key": "it would stand in plain sight in the plan and the scripts, and the checks would not send it; ask for "
    "keys in front of the service",
    "kv-cache-memory-bytes": "the planner sizes the cache; --gpu-memory-utilization makes it smaller or larger",
    "num-gpu-blocks-override": "the planner sizes the cache; --gpu-memory-utilization makes it smaller or larger",
    "pipeline-parallel-size": "the planner cuts models by tensor and data parallelism only",
    "prefill-context-parallel-size": "the planner cuts models by tensor and data parallelism only",
    "decode-context-parallel-size": "the planner cuts models by tensor and data parallelism only",
    "config": "what the file says could not be checked; give its flags one by one",
}
"""Flags that a plan cannot follow, and why."""
NOT_COUNTED = ("kv-cache-dtype", "cpu-offload-gb", "swap-space", "block-size", "mm-processor-cache-gb")
"""Flags that change what memory goes to, and that the planner's memory does not count with."""
GRAPH_KEYS = {
    "cudagraph-capture-sizes": "cudagraph_capture_sizes",
    "max-cudagraph-capture-size": "max_cudagraph_capture_size",
}
"""Flags that are keys of --compilation-config as well; the engine refuses both at once."""

MAX_FACTOR = 64
"""Larger factors of YaRN are taken for a slip."""


@dataclass(frozen=True)
class Overrides:
    """What is left of the overrides.

    Attributes:
        wish: with those that are fields.
        mode: cudagraph_mode.
        capture_sizes: of graphs.
        state_element_bytes: of one element of recurrent states; None where it is not said.
        max_num_seqs: per data parallel rank.
        rope_factor: by which --hf-overrides stretches the window.
        rope_window: tokens of the stretched window, where the override says from what; None elsewhere.
        flags: everything else, nested for JSON arguments.
    """

    wish: Wish
    mode: str | None = None
    capture_sizes: tuple[int, ...] | None = None
    state_element_bytes: int | None = None
    max_num_seqs: int | None = None
    rope_factor: float = 1.0
    rope_window: int | None = None
    flags: dict[str, Any] = field(default_factory=dict)


def read_overrides(wish: Wish, knowledge: Knowledge) -> Overrides:
    """Sorts the overrides of a wish.

    Raises:
        ImpossibleWish: one contradicts a field, has the wrong kind, or belongs to the planner.
    """
    fields: dict[str, Any] = {}
    flags: dict[str, Any] = {}
    for name, value in wish.overrides.items():
        plain = name.removeprefix("--").replace("_", "-") if "." not in name else name.removeprefix("--")
        if plain.startswith("no-") and isinstance(value, bool) and plain not in knowledge.serve_flags.entries:
            plain, value = plain.removeprefix("no-"), not value
        if plain in GRAPH_KEYS:
            plain, value = f"compilation-config.{GRAPH_KEYS[plain]}", _as_sizes(plain, value)
        if plain in FIELDS:
            fields[FIELDS[plain]] = _as_field(wish, plain, value)
        else:
            _put(wish, plain, value, flags, knowledge)
    seqs = flags.pop("max-num-seqs", None)
    factor, window = _rope(flags)
    if seqs is not None and (not isinstance(seqs, int) or isinstance(seqs, bool) or seqs < 1):
        raise _refusal(wish, "max-num-seqs", f"{seqs!r} is no number of sequences")
    try:
        changed = msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(wish, **fields)), Wish)
    except msgspec.ValidationError as error:
        raise _refusal(wish, next(iter(wish.overrides)), str(error)) from None
    return Overrides(
        wish=changed,
        mode=_graph_mode(flags),
        capture_sizes=_capture_sizes(flags),
        state_element_bytes=_state_bytes(flags),
        max_num_seqs=seqs,
        rope_factor=factor,
        rope_window=window,
        flags=flags,
    )


def _as_sizes(name: str, value: Any) -> Any:
    """Capture sizes as a list, however they are written."""
    if not name.endswith("sizes") or isinstance(value, list):
        return value
    words = str(value).replace(",", " ").split()
    return [int(word) for word in words] if all(word.isdigit() for word in words) else value


def _as_field(wish: Wish, name: str, value: Any) -> Any:
    stated = getattr(wish, FIELDS[name])
    if stated is not None and stated is not False and stated != value:
        flag = flag_of(FIELDS[name])
        raise _refusal(wish, name, f"{value} contradicts {flag} {stated}")
    return value


def _put(wish: Wish, name: str, value: Any, flags: dict[str, Any], knowledge: Knowledge) -> None:
    """Puts an override into the flags; dots lead into JSON arguments."""
    top, *path = name.split(".")
    top = top.replace("_", "-")
    if top in OWN:
        reason = "the planner sets it for each role or node; fields of the wish decide it"
        raise _refusal(wish, name, reason, *_fields_instead(wish, top, path, value))
    if top in REFUSED:
        raise _refusal(wish, name, REFUSED[top])
    if isinstance(value, str) and (
        value.startswith(("{", "[")) or f"--{top}" in knowledge.json_flags and not path
    ):
        try:
            value = json.loads(value)
        except ValueError:
            raise _refusal(wish, name, f"{value!r} is no JSON") from None
    if not path:
        flags[top] = value
        return
    inner = flags.setdefault(top, {})
    for part in path[:-1]:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else {}
    if not isinstance(inner, dict):
        raise _refusal(wish, name, f"--{top} is given twice, as a whole and in part")
    inner[path[-1]] = value


def _graph_mode(flags: Mapping[str, Any]) -> str | None:
    if flags.get("enforce-eager") is True:
        return "NONE"
    config = flags.get("compilation-config")
    mode = config.get("cudagraph_mode") if isinstance(config, dict) else None
    return mode if isinstance(mode, str) else None


def _capture_sizes(flags: Mapping[str, Any]) -> tuple[int, ...] | None:
    config = flags.get("compilation-config")
    sizes = config.get("cudagraph_capture_sizes") if isinstance(config, dict) else None
    if not isinstance(sizes, list) or not all(type(one) is int and one > 0 for one in sizes):
        return None
    return tuple(sorted(set(sizes)))


def _state_bytes(flags: Mapping[str, Any]) -> int | None:
    stated = flags.get("mamba-ssm-cache-dtype")
    return None if stated is None else 2 if str(stated).endswith("16") else 4


def _rope(flags: Mapping[str, Any]) -> tuple[float, int | None]:
    """By how much YaRN stretches the window (1 without it), and to what where it says from what."""
    config = flags.get("hf-overrides")
    for parent in (config, config.get("text_config") if isinstance(config, dict) else None):
        for name in ("rope_parameters", "rope_scaling"):
            rope = parent.get(name) if isinstance(parent, dict) else None
            factor = rope.get("factor") if isinstance(rope, dict) else None
            if isinstance(factor, int | float) and not isinstance(factor, bool) and 1 < factor <= MAX_FACTOR:
                original = rope.get("original_max_position_embeddings") if isinstance(rope, dict) else None
                is_number = isinstance(original, int) and not isinstance(original, bool)
                return float(factor), int(original * factor) if is_number and original else None
    return 1.0, None


def _fields_instead(wish: Wish, top: str, path: list[str], value: Any) -> Iterator[Wish]:
    """The wish with fields that say what an override of speculation means."""
    if top != "speculative-config":
        return
    others = {one: kept for one, kept in wish.overrides.items() if "speculative" not in one}
    if path == ["num_speculative_tokens"] and isinstance(value, int):
        yield msgspec.structs.replace(wish, num_speculative_tokens=value, overrides=others)
    elif not path:
        yield msgspec.structs.replace(wish, speculation="off", overrides=others)


def _refusal(wish: Wish, name: str, reason: str, *instead: Wish) -> ImpossibleWish:
    kept = {one: value for one, value in wish.overrides.items() if one.removeprefix("--") != name}
    rest = [msgspec.structs.replace(wish, overrides=kept), msgspec.structs.replace(wish, overrides={})]
    candidates = [*instead, *rest]
    return ImpossibleWish(f"--overrides {name}: {reason}.", param="--overrides", candidates=candidates)


def apply(flags: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Flags with the overrides over them, key by key in JSON arguments."""
    merged = dict(flags)
    for name, value in overrides.items():
        before = merged.get(name)
        merged[name] = apply(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    if merged.get("enforce-eager") is True:
        merged.pop("compilation-config", None)
    return merged
