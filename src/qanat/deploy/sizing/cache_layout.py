"""How keys, values and recurrent states lie in one pool of blocks.

Hybrid models: a block holds as many tokens as make the keys of one attention layer as large as one float32 recurrent
state. A page is keys, values and the convolution's state; layers form equal groups (one of attention, usually three
of recurrent layers), and a block of the pool has a page for every layer of a group. A sequence takes a block per
`block_tokens` tokens for its attention, and for each recurrent group one block per state it keeps: 1 + k, one more
with prefix caching. As read in vLLM 0.18's kv_cache_utils and the patch of vllm-ascend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.sizing.capture import hybrid_block_size
from qanat.deploy.sizing.layout import Drafter, Layout
from qanat.deploy.sizing.parameters import linear_sizes
from qanat.deploy.sizing.weights import weight_format

ATTENTION_BLOCK = 128
"""Tokens of a block of a model without recurrent layers."""


@dataclass(frozen=True, kw_only=True)
class CacheLayout:
    """The cache of one rank.

    Attributes:
        model: its sizes.
        tp: tensor parallel size.
        num_speculative_tokens: k; the drafter adds a layer of attention when it is above 0.
        keeps_extra_state: prefix caching keeps one more state per sequence (align mode).
        element_bytes: of one element of keys and values.
        state_element_bytes: of one element of the recurrent state.
        drafter: None counts as the model's own where k is above 0.
    """

    model: ModelFacts
    tp: int
    num_speculative_tokens: int = 0
    keeps_extra_state: bool = False
    element_bytes: int = 2
    state_element_bytes: int = 4
    drafter: Drafter | None = None

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys on a rank."""
        return math.ceil(self.model.num_kv_heads / self.tp)

    @property
    def num_attention_layers(self) -> int:
        """Layers with keys and values, the drafter's counted."""
        has_layer = self.drafter is not None or self.model.num_mtp_layers > 0
        return self.model.num_attention_layers + int(self.num_speculative_tokens > 0 and has_layer)

    @property
    def block_tokens(self) -> int:
        """Tokens of one attention block."""
        if not self.model.is_hybrid:
            return ATTENTION_BLOCK
        model = self.model
        heads, dim = model.num_linear_value_heads, model.linear_head_dim
        return hybrid_block_size(
            model.num_kv_heads, model.head_dim, heads, dim, self.tp, self.state_element_bytes
        )

    @property
    def state_bytes(self) -> int:
        """One recurrent state of one layer."""
        return linear_sizes(self.model, self.tp)[1] * self.model.linear_head_dim * self.state_element_bytes

    @property
    def convolution_bytes(self) -> int:
        """State of one layer's convolution: kernel - 1 rows, and one for each speculative token."""
        key_size, value_size = linear_sizes(self.model, self.tp)
        rows = self.model.linear_conv_kernel - 1 + self.num_speculative_tokens
        return rows * (2 * key_size + value_size) * 2 if self.model.is_hybrid else 0

    @property
    def page_bytes(self) -> int:
        """One layer's part of a block."""
        keys = self.block_tokens * self.num_kv_heads * self.model.head_dim * self.element_bytes
        return 2 * max(keys, self.state_bytes) + self.convolution_bytes

    @property
    def group_size(self) -> int:
        """Layers whose pages make one block of the pool."""
        attention, linear = self.num_attention_layers, self.model.num_linear_layers
        if not linear:
            return attention
        smaller, larger = sorted((attention, linear))
        return larger if larger < 1.25 * smaller else smaller

    @property
    def num_attention_groups(self) -> int:
        """Groups of attention layers."""
        return math.ceil(self.num_attention_layers / self.group_size)

    @property
    def num_state_groups(self) -> int:
        """Groups of recurrent layers."""
        return math.ceil(self.model.num_linear_layers / self.group_size)

    @property
    def pool_block_bytes(self) -> int:
        """One block of the pool."""
        return self.page_bytes * self.group_size

    @property
    def state_blocks(self) -> int:
        """Blocks that the recurrent states of one sequence take, whatever its length."""
        num_states = 1 + self.num_speculative_tokens + int(self.keeps_extra_state)
        return self.num_state_groups * num_states

    def attention_blocks(self, num_tokens: int) -> int:
        """Blocks for keys and values of a sequence."""
        return self.num_attention_groups * math.ceil(num_tokens / self.block_tokens)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks of a sequence with `num_tokens` tokens."""
        return self.state_blocks + self.attention_blocks(num_tokens)

    def tokens_in(self, num_blocks: int) -> int:
        """Tokens of the longest sequence in `num_blocks` blocks."""
        left = max(0, num_blocks - self.state_blocks)
        return left // self.num_attention_groups * self.block_tokens


def cache_of(layout: Layout) -> CacheLayout:
    """The cache of a layout."""
    return CacheLayout(
        model=layout.model,
        tp=layout.tp,
        num_speculative_tokens=layout.num_speculative_tokens,
        keeps_extra_state=layout.prefix_caching and layout.model.is_hybrid,
        element_bytes=weight_format(layout.variant).cache_bits // 8,
        state_element_bytes=layout.state_element_bytes,
        drafter=layout.drafter,
    )
