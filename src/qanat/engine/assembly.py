"""Puts the core loop together around a loaded model. Needs torch; the front end never imports this."""

from __future__ import annotations

import time

from qanat.cache.manager import HybridCacheManager
from qanat.cache.spec import planned_spec
from qanat.config.prefix_identity import prefix_folder
from qanat.config.resolved import ResolvedConfig
from qanat.config.sharding import rank_model
from qanat.config.speculative import SpeculativeSettings
from qanat.engine.core import EngineCore
from qanat.engine.form_preparation import FormPreparation
from qanat.engine.messages import Ready
from qanat.engine.prefix_store import PrefixStore
from qanat.engine.prefixes import prefix_rules
from qanat.executor.base import Executor
from qanat.executor.starting import start_executor
from qanat.platforms.cpu import CpuPlatform
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.scheduler.scheduler import Scheduler
from qanat.structured.factory import FormFactory


def build_core(config: ResolvedConfig, forms: FormFactory) -> tuple[EngineCore, Ready]:
    """Fits open limits to the memory, loads the model, allocates the cache.

    Args:
        config: every setting.
        forms: makes matchers; needs no vocabulary yet.

    Returns:
        The loop, and what there is to report of the start.

    Raises:
        CheckpointError: the model folder cannot be served.
        CapacityError: weights or cache do not fit.
    """
    available_bytes = config.cache.available_bytes
    if available_bytes is None:
        available_bytes = CpuPlatform().memory().available_bytes
    start, executor = start_executor(config, available_bytes, forms)
    config = start.config
    shape = rank_model(config.model, config.tensor_parallel_size)
    spec = planned_spec(shape, config.cache)
    rules = prefix_rules(config, start.memory)
    cache = HybridCacheManager(spec, start.memory.num_blocks, start.memory.num_states, rules)
    preparation = FormPreparation(forms, config.structured.backend, config.scheduler.max_waiting_requests)
    scheduler = Scheduler(config.scheduler, cache, time.monotonic, _draft_lengths(config.speculative))
    store = _prefix_store(config, cache, executor)
    core = EngineCore(scheduler, executor, forms=preparation, prefixes=store)
    return core, Ready(config, start.memory, list(start.decisions), executor.op_table())


def _prefix_store(
    config: ResolvedConfig, cache: HybridCacheManager, executor: Executor
) -> PrefixStore | None:
    """What is kept on disk between starts, loaded; None for nothing."""
    folder, exchange = prefix_folder(config, executor.op_table(), 0), cache.exchange()
    if folder is None or exchange is None or config.prefix_cache is None:
        return None
    num_local_ranks = config.tensor_parallel_size // config.parallel.num_nodes
    store = PrefixStore(exchange, folder, executor, config.prefix_cache.folder_bytes, num_local_ranks)
    store.load()
    return store


def _draft_lengths(settings: SpeculativeSettings) -> DraftLengths | None:
    if not settings.method:
        return None
    return DraftLengths(settings.num_tokens, is_adaptive=settings.is_adaptive)
