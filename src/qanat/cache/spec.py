"""From a model's shape to the regions of its cache."""

from __future__ import annotations

from qanat.config.model_config import ModelConfig
from qanat.config.resolved import CacheLimits
from qanat.core.cache_spec import CacheRegion, CacheSpec, head_width

KV_BLOCKS = "kv_blocks"
CONV_STATE = "conv_state"
RECURRENT_STATE = "recurrent_state"


def planned_spec(model: ModelConfig, limits: CacheLimits) -> CacheSpec:
    """The cache of a model, or of one rank's share of it, as the settings have it."""
    return cache_spec(
        model,
        block_size=limits.block_size,
        kv_dtype=limits.kv_cache_dtype,
        conv_dtype=limits.conv_dtype,
    )


def cache_spec(model: ModelConfig, *, block_size: int, kv_dtype: str, conv_dtype: str = "") -> CacheSpec:
    """Names and sizes of everything that is cached for a model.

    Per full-attention layer one block holds keys and values, [2, block_size, KV heads, width of a head], split by head
    under tensor parallelism; the width is `head_width`. Per linear-attention layer one state holds the last inputs of
    the convolution, [kernel - 1, conv_dim], and the recurrent state, [value heads, key dim, value dim]; the latter is
    always float32, because it accumulates over the whole sequence.

    Args:
        model: the model's shape.
        block_size: tokens in one KV block.
        kv_dtype: storage type's name of the KV blocks.
        conv_dtype: of the conv state; empty for the same.
    """
    regions = [
        CacheRegion(
            name=KV_BLOCKS,
            unit="block",
            num_layers=model.num_full_attention_layers,
            unit_shape=(2, block_size, model.num_key_value_heads, head_width(model.head_dim, kv_dtype)),
            dtype=kv_dtype,
            shard_axis=2,
        )
    ]
    if model.gdn is not None:
        gdn = model.gdn
        regions += [
            CacheRegion(
                name=CONV_STATE,
                unit="state",
                num_layers=model.num_linear_attention_layers,
                unit_shape=(gdn.conv_kernel_dim - 1, gdn.conv_dim),
                dtype=conv_dtype or kv_dtype,
                shard_axis=1,
            ),
            CacheRegion(
                name=RECURRENT_STATE,
                unit="state",
                num_layers=model.num_linear_attention_layers,
                unit_shape=(gdn.num_value_heads, gdn.key_head_dim, gdn.value_head_dim),
                dtype="float32",
                shard_axis=0,
            ),
        ]
    return CacheSpec(block_size=block_size, regions=tuple(regions))
