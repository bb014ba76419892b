"""Longer windows: overrides of the rotary embedding."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.lint.names import nearest
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.json_text import JsonNode

OVERRIDES = "--hf-overrides"
ROPE_NAMES = ("rope_parameters", "rope_scaling")
ROPE_KEYS = (
    "rope_type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "short_factor",
    "long_factor",
    "low_freq_factor",
    "high_freq_factor",
    "partial_rotary_factor",
    "mrope_section",
    "mrope_interleaved",
    "mscale",
    "mscale_all_dim",
    "truncate",
)


@on_server("MOD004", "MOD005")
def overrides(view: LaunchView) -> Iterator[Hit]:
    """Where the override stands, and how its keys are spelt."""
    root = view.json(OVERRIDES)
    if root is None:
        return
    for key, node in root.members.items():
        place = node.key_place or node.place
        near = nearest(key, (*ROPE_NAMES, "text_config"))
        if key.startswith("rope") and key not in (*ROPE_NAMES, "rope_theta") and near is not None:
            yield Hit("MOD005", place, f"{OVERRIDES} has {key}; did you mean {near}?", f"write {near}")
        if key in ROPE_NAMES and view.model is not None and view.model.has_vision:
            message = f"{view.model.name} keeps {key} in its text_config; at the top it changes nothing"
            yield Hit("MOD004", place, message, f'{{"text_config": {{"{key}": ...}}}}')
    for parent in (root, root.get("text_config")):
        for name in ROPE_NAMES:
            rope = parent.get(name) if parent is not None else None
            yield from _spelling(rope) if rope is not None else ()


def _spelling(rope: JsonNode) -> Iterator[Hit]:
    for key, node in rope.members.items():
        place = node.key_place or node.place
        if key == "type" and "rope_type" not in rope.members:
            yield Hit("MOD005", place, "type is the old spelling of rope_type", "write rope_type")
        elif key != "type" and key not in ROPE_KEYS:
            near = nearest(key, ROPE_KEYS)
            advice = f"did you mean {near}?" if near else "remove it"
            yield Hit("MOD005", place, f"the rotary embedding has no {key}; {advice}", advice)


def rope_factor(view: LaunchView) -> float | None:
    """By how much an override stretches the window; None without one, or if it does not say."""
    root = view.json(OVERRIDES)
    for parent in (root, root.get("text_config") if root else None):
        for name in ROPE_NAMES:
            node = parent.get(name, "factor") if parent is not None else None
            if node is not None and isinstance(node.value, int | float) and not isinstance(node.value, bool):
                return float(node.value)
    return None
