"""From the settings to the rules by which prefixes are reused."""

from __future__ import annotations

from qanat.cache.prefix_cache import PrefixRules
from qanat.cache.spec import planned_spec
from qanat.config.prefix_identity import prefix_weights
from qanat.config.resolved import ResolvedConfig
from qanat.core.memory_plan import MemoryPlan


def prefix_rules(config: ResolvedConfig, memory: MemoryPlan) -> PrefixRules | None:
    """The rules; None if nothing is reused.

    The layout names everything beside the weights that the bits in the cache depend on, for the whole model: ranks
    hold parts of the same content.

    Args:
        config: the resolved configuration.
        memory: tells how many checkpoints there is room for.
    """
    if config.prefix_cache is None:
        return None
    regions = planned_spec(config.model, config.cache).regions
    parts = [config.dtype, config.quantization, str(config.cache.block_size)]
    parts += [f"{region.name}:{region.num_layers}x{region.unit_shape}:{region.dtype}" for region in regions]
    return PrefixRules(
        prefix_weights(config),
        "|".join(parts),
        is_by_owner=config.prefix_cache.is_by_key,
        num_checkpoints=memory.num_checkpoints,
        keeps_output_states=not config.speculative.method,
    )
