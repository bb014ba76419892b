"""From a model's shape to the regions of its cache."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.config.model_config import GatedDeltaNetConfig, ModelConfig
from qanat.config.resolved import CacheLimits
from qanat.core.cache_spec import CacheRegion, CacheSpec, head_width

KV_BLOCKS = "kv_blocks"
CONV_STATE = "conv_state"
RECURRENT_STATE = "recurrent_state"
DRAFT_KV = "draft_kv"
DRAFT_COUNTS = "draft_counts"
DRAFT_ROWS = "draft_rows"
DRAFT_BLOCK_ROWS = "draft_block_rows"
HELD_INPUTS = "held_inputs"
HELD_GATES = "held_gates"


def planned_spec(model: ModelConfig, limits: CacheLimits) -> CacheSpec:
    """The cache of a model, or of one rank's share of it, as the settings have it."""
    return cache_spec(
        model,
        block_size=limits.block_size,
        kv_dtype=limits.kv_cache_dtype,
        conv_dtype=limits.conv_dtype,
        num_held_rows=limits.num_held_rows,
    )


def cache_spec(
    model: ModelConfig, *, block_size: int, kv_dtype: str, conv_dtype: str = "", num_held_rows: int = 0
) -> CacheSpec:
    """Names and sizes of everything that is cached for a model.

    Per full-attention layer one block holds keys and values, [2, block_size, KV heads, width of a head], split by head
    under tensor parallelism; the width is `head_width`. Per linear-attention layer one state holds the last inputs of
    the convolution, [kernel - 1, conv_dim], and the recurrent state, [value heads, key dim, value dim]; the latter is
    always float32, because it accumulates over the whole sequence. Where drafts are verified, a state also has room for
    the rows of one step: inputs of the convolution, [rows, conv_dim], and two gates for each value head, [rows, 2,
    value heads] in float32. A draft layer has keys and values of its own heads like a full-attention layer, in the same
    blocks, and for each block the number of tokens that have them. The row that drafts go on from behind what was
    found, [hidden size], lies beside each state, or beside each block where there are no states.

    Args:
        model: the model's shape.
        block_size: tokens in one KV block.
        kv_dtype: storage type's name of the KV blocks.
        conv_dtype: of the conv state; empty for the same.
        num_held_rows: most rows of a request that a step verifies; 0 where nothing is ever drafted.
    """

    def kv_region(name: str, num_layers: int, layer: ModelConfig) -> CacheRegion:
        shape = (2, block_size, layer.num_key_value_heads, head_width(layer.head_dim, kv_dtype))
        return CacheRegion(name, "block", num_layers, shape, kv_dtype, shard_axis=2)

    regions = [kv_region(KV_BLOCKS, model.num_full_attention_layers, model)]
    draft_layer = model.cached_draft_layer
    if draft_layer is not None:
        regions.append(kv_region(DRAFT_KV, 1, draft_layer))
        regions.append(CacheRegion(DRAFT_COUNTS, "block", 1, (1, 1), "int32", shard_axis=None))
    row_dtype = conv_dtype or kv_dtype
    if model.gdn is not None:
        regions += _states(model.gdn, model.num_linear_attention_layers, row_dtype, num_held_rows)
    if draft_layer is not None:
        width = draft_layer.hidden_size
        regions.append(
            CacheRegion(DRAFT_BLOCK_ROWS, "block", 1, (1, width), row_dtype, shard_axis=None)
            if model.gdn is None
            else CacheRegion(DRAFT_ROWS, "state", 1, (width,), row_dtype, shard_axis=None)
        )
    return CacheSpec(block_size=block_size, regions=tuple(regions))


def _states(
    gdn: GatedDeltaNetConfig, num_layers: int, conv_dtype: str, num_held_rows: int
) -> Iterator[CacheRegion]:
    heads = gdn.num_value_heads
    past, matrices = (gdn.conv_kernel_dim - 1, gdn.conv_dim), (heads, gdn.key_head_dim, gdn.value_head_dim)
    yield CacheRegion(CONV_STATE, "state", num_layers, past, conv_dtype, shard_axis=1)
    yield CacheRegion(RECURRENT_STATE, "state", num_layers, matrices, "float32", shard_axis=0)
    if num_held_rows:
        inputs, gates = (num_held_rows, gdn.conv_dim), (num_held_rows, 2, heads)
        yield CacheRegion(HELD_INPUTS, "state", num_layers, inputs, conv_dtype, shard_axis=1)
        yield CacheRegion(HELD_GATES, "state", num_layers, gates, "float32", shard_axis=2)
