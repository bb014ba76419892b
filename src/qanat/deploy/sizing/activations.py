"""Estimate of the activations at the peak of the profile run: nothing here is computed by the engine's own rule."""

from __future__ import annotations

import math

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.sizing.layout import Layout
from qanat.deploy.sizing.parameters import MERGED_PATCHES, linear_sizes

_ELEMENT = 2
_CHUNK = 64
"""Tokens of a chunk of the recurrent layers; one state per chunk is written out."""


def activation_bytes(layout: Layout, knowledge: Knowledge) -> int:
    """Bytes at the peak of a step of `max_num_batched_tokens` tokens, or of the sampler, or of the vision tower.

    Hidden states stay; on top of them comes the largest of: an attention layer, a recurrent layer, the feed forward
    or experts, the logits. All of it is an estimate (`estimates.yaml`).
    """
    tokens = layout.max_num_batched_tokens
    hidden = tokens * layout.model.hidden_size * _ELEMENT
    gathered = hidden * layout.dp if layout.model.is_moe and layout.dp > 1 else 0
    layer = max(
        _attention_bytes(layout),
        _linear_attention_bytes(layout, knowledge),
        expert_bytes(layout) + gathered,
        _dense_bytes(layout),
        _logits_bytes(layout, knowledge),
    )
    language = math.ceil(hidden * knowledge.estimate("hidden_copies")) + layer
    return max(language, _vision_bytes(layout, knowledge)) + _encoder_output_bytes(layout, knowledge)


def expert_bytes(layout: Layout) -> int:
    """Rows that routed experts of one NPU read and write in a step where tokens spread evenly; 0 without experts."""
    model = layout.model
    if not model.is_moe:
        return 0
    rows = layout.max_num_batched_tokens * layout.dp * model.num_experts_per_token
    width = 2 * model.hidden_size + 3 * model.expert_intermediate_size
    if not layout.expert_parallel:
        return rows * (2 * model.hidden_size + 3 * model.expert_intermediate_size // layout.ep) * _ELEMENT
    return math.ceil(rows / layout.ep) * width * _ELEMENT


def _dense_bytes(layout: Layout) -> int:
    width = math.ceil(3 * layout.model.intermediate_size / layout.tp)
    return layout.max_num_batched_tokens * width * _ELEMENT


def _attention_bytes(layout: Layout) -> int:
    model, tp = layout.model, layout.tp
    heads = 3 * math.ceil(model.num_query_heads / tp) + 2 * math.ceil(model.num_kv_heads / tp)
    return layout.max_num_batched_tokens * heads * model.head_dim * _ELEMENT


def _linear_attention_bytes(layout: Layout, knowledge: Knowledge) -> int:
    key_size, value_size = linear_sizes(layout.model, layout.tp)
    projections = 2 * (key_size + value_size) * _ELEMENT * knowledge.estimate("linear_copies")
    states = value_size * layout.model.linear_head_dim * _ELEMENT / _CHUNK
    return math.ceil(layout.max_num_batched_tokens * (projections + states))


def _logits_bytes(layout: Layout, knowledge: Knowledge) -> int:
    rows = min(layout.max_num_seqs * (1 + layout.num_speculative_tokens), layout.max_num_batched_tokens)
    return math.ceil(rows * layout.model.vocab_size * 4 * knowledge.estimate("logits_copies"))


def _vision_bytes(layout: Layout, knowledge: Knowledge) -> int:
    if not layout.has_vision:
        return 0
    model = layout.model
    patches = knowledge.estimate("vision_tokens") * MERGED_PATCHES
    width = knowledge.estimate("hidden_copies") * model.vision_hidden_size
    width += 2 * model.vision_intermediate_size / layout.tp
    return math.ceil(patches * width * _ELEMENT)


def _encoder_output_bytes(layout: Layout, knowledge: Knowledge) -> int:
    if not layout.has_vision:
        return 0
    return math.ceil(knowledge.estimate("vision_tokens") * layout.model.hidden_size * _ELEMENT)
