"""Puts the core loop together around a loaded model. Needs torch; the front end never imports this."""

from __future__ import annotations

import time

from qanat.cache.manager import HybridCacheManager
from qanat.cache.spec import cache_spec
from qanat.config.resolved import ResolvedConfig
from qanat.engine.core import EngineCore
from qanat.executor.uniproc import UniprocExecutor
from qanat.scheduler.scheduler import Scheduler


def build_core(config: ResolvedConfig) -> tuple[EngineCore, UniprocExecutor]:
    """Loads the model, sizes and allocates the cache, and returns the loop with its executor.

    Raises:
        CheckpointError: the model folder cannot be served.
        CapacityError: weights or cache do not fit.
    """
    executor = UniprocExecutor(config)
    plan = executor.memory_plan
    spec = cache_spec(config.model, block_size=config.cache.block_size, kv_dtype=config.cache.kv_cache_dtype)
    cache = HybridCacheManager(spec, plan.num_blocks, plan.num_states)
    return EngineCore(Scheduler(config.scheduler, cache, time.monotonic), executor), executor
