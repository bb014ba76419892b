"""Runs a trace through the engine's own cache manager, one request after the other, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.prefixes.traces import Turn
from qanat.cache.eviction import EvictionQueue
from qanat.cache.manager import HybridCacheManager
from qanat.cache.prefix_cache import PrefixRules
from qanat.core.cache_spec import CacheRegion, CacheSpec
from qanat.core.request import Request
from qanat.core.sampling_params import SamplingParams

BLOCK_SIZE = 64
LARGEST = 1_000_000
"""Places that never run out."""


def spec_of_08b() -> CacheSpec:
    """The cache of Qwen3.5-0.8B in bfloat16: 768 KiB a block, 18.6 MiB a state."""
    return CacheSpec(
        BLOCK_SIZE,
        (
            CacheRegion("kv_blocks", "block", 6, (2, BLOCK_SIZE, 2, 256), "bfloat16", 2),
            CacheRegion("conv_state", "state", 18, (3, 6144), "bfloat16", 1),
            CacheRegion("recurrent_state", "state", 18, (16, 128, 128), "float32", 0),
        ),
    )


def attention_spec() -> CacheSpec:
    """The same without recurrent layers."""
    return CacheSpec(BLOCK_SIZE, spec_of_08b().regions[:1])


@dataclass(frozen=True)
class Pools:
    """Places for blocks and for checkpoints."""

    num_blocks: int = LARGEST
    num_checkpoints: int = LARGEST

    def share(self, part: float, least_blocks: int) -> Pools:
        """A part of them, with room for the longest request at least."""
        return Pools(max(least_blocks, round(self.num_blocks * part)), round(self.num_checkpoints * part))


@dataclass(frozen=True)
class Outcome:
    """What a trace came to.

    Attributes:
        num_hit_tokens: prompt tokens that the cache supplied.
        used: places taken at the end; of unbounded pools all that were ever taken.
    """

    num_hit_tokens: int
    used: Pools


def replay(turns: Sequence[Turn], spec: CacheSpec, pools: Pools, *, is_lru: bool = False) -> Outcome:
    """Runs a trace.

    Args:
        turns: the trace.
        spec: sizes of blocks and states.
        pools: how much there is room for.
        is_lru: the longest unused goes first, whatever it is worth.
    """
    rules = PrefixRules(num_checkpoints=pools.num_checkpoints)
    cache = HybridCacheManager(spec, pools.num_blocks + 1, 2, rules)
    if is_lru:
        assert cache._prefixes is not None
        _make_lru(cache._prefixes._queue)
        _make_lru(cache._prefixes.checkpoints._queue)
    num_hit_tokens = 0
    for number, turn in enumerate(turns):
        num_hit_tokens += _run(cache, number, turn)
        cache.take_copies()
    stats = cache.prefix_stats()
    return Outcome(num_hit_tokens, Pools(stats.num_blocks, stats.num_checkpoints))


def _run(cache: HybridCacheManager, number: int, turn: Turn) -> int:
    """One request from admission to its end; returns the tokens of its hit."""
    request = Request(
        request_id=str(number),
        prompt_token_ids=turn.prompt,
        sampling=SamplingParams(max_tokens=len(turn.output)),
        seed=0,
        boundaries=turn.boundaries,
    )
    hit = cache.lookup(request)
    if cache.admit(request, hit, request.num_tokens) is None:
        raise RuntimeError("a request does not fit into the pool")
    request.num_computed_tokens = hit.num_tokens
    if request.num_computed_tokens < len(turn.prompt):
        cache.keep_on_the_way(request.request_id, request.num_computed_tokens, len(turn.prompt))
        request.num_computed_tokens = len(turn.prompt)
    while len(request.output_token_ids) < len(turn.output):
        start = request.num_computed_tokens
        if start % BLOCK_SIZE == 0:
            cache.advance(request)
        if cache.extend(request.request_id, start + 1) is None:
            break
        end = min(start - start % BLOCK_SIZE + BLOCK_SIZE, len(turn.prompt) + len(turn.output))
        known = end - len(turn.prompt)
        request.output_token_ids[:] = turn.output[:known]
        request.num_computed_tokens = min(end, len(turn.prompt) + len(turn.output) - 1)
    cache.release(request.request_id)
    return hit.num_tokens


def _make_lru(queue: EvictionQueue) -> None:  # type: ignore[type-arg]  # blocks or checkpoints
    """Ranks by the moment of the last use alone."""
    clock = iter(range(1, 1_000_000_000))

    def touch(item: object) -> None:
        item.base = float(next(clock))  # type: ignore[attr-defined]

    queue.touch = touch  # type: ignore[method-assign]
    queue._rank = lambda item: item.base  # type: ignore[method-assign]
