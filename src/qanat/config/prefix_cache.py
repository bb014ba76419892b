"""What is settled about the reuse of prefixes."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.engine_config import EngineConfig
from qanat.config.model_config import ModelConfig
from qanat.core.decision import Decision


@dataclass(frozen=True)
class PrefixCacheSettings:
    """The prefix cache.

    Attributes:
        is_by_key: requests share prefixes only with those of the same API key.
        state_bytes: memory for checkpoints of recurrent states; None for a share of the cache.
    """

    is_by_key: bool = False
    state_bytes: int | None = None


def prefix_cache_settings(
    wishes: EngineConfig, model: ModelConfig, said: list[Decision]
) -> PrefixCacheSettings | None:
    """The settings; None if prefixes are not reused.

    Args:
        wishes: what was asked for.
        model: the checkpoint's shape.
        said: gets the decisions.
    """
    if wishes.enable_prefix_caching is False:
        return None
    state_bytes = wishes.prefix_cache_state_bytes
    if model.gdn is None and state_bytes is not None:
        why = "this model has no recurrent layers"
        said.append(Decision("--prefix-cache-state-bytes", state_bytes, "no effect", why))
        state_bytes = None
    if model.gdn is not None and not wishes.enable_chunked_prefill:
        why = "states are kept between steps, and without chunked prefill a prompt is one step: only outputs are reused"
        said.append(Decision("--enable-prefix-caching", wishes.enable_prefix_caching, "limited", why))
    return PrefixCacheSettings(wishes.prefix_cache_scope == "key", state_bytes)
