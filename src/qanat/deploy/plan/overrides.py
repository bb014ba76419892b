"""Flags that the user insists on: those that shape the plan go into the wish, the others over its flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

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


def _as_field(wish: Wish, name: str, value: Any) -> Any:
    stated = getattr(wish, FIELDS[name])
    if stated is not None and stated is not False and stated != value:
        flag = "--" + FIELDS[name].replace("_", "-")
        raise _refusal(wish, name, f"{value} contradicts {flag} {stated}")
    return value


def _put(wish: Wish, name: str, value: Any, flags: dict[str, Any], knowledge: Knowledge) -> None:
    """Puts an override into the flags; dots lead into JSON arguments."""
    top, *path = name.split(".")
    top = top.replace("_", "-")
    if top in OWN:
        raise _refusal(wish, name, "the planner sets it for each role or node; fields of the wish decide it")
    if not path and isinstance(value, str) and (f"--{top}" in knowledge.json_flags or value.startswith("{")):
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


def _refusal(wish: Wish, name: str, reason: str) -> ImpossibleWish:
    kept = {one: value for one, value in wish.overrides.items() if one.removeprefix("--") != name}
    candidates = [msgspec.structs.replace(wish, overrides=kept), msgspec.structs.replace(wish, overrides={})]
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
