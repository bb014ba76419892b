"""Divides the memory before anything is loaded, and refuses what cannot fit. No torch here: `qanat plan` uses it."""

from __future__ import annotations

import dataclasses

from qanat.cache.spec import planned_spec
from qanat.config.resolved import ResolvedConfig
from qanat.config.sharding import rank_model
from qanat.core.cache_spec import CacheSpec
from qanat.core.errors import CapacityError
from qanat.core.memory_plan import MemoryPlan
from qanat.worker.workspace import arena_bytes, graph_bytes, logits_chunk_rows, workspace_bytes

MIB = 2**20
CHECKPOINT_SHARE = 0.25
"""Of what blocks and checkpoints have together. A checkpoint weighs as much as the KV of 1,600 tokens and more."""
CHECKPOINT_GRID = 64
"""Tokens between the places of checkpoints."""
SHARE_FLAG = "--memory-share (or --gpu-memory-utilization)"
"""Whichever of the two was given: the configuration no longer tells."""


RANK_PROCESS_BYTES = 160 * MIB
"""What the process of another rank takes before it loads anything: Python and torch (150 MiB were measured)."""


def rank_bytes(available_bytes: int, num_ranks: int) -> int:
    """Memory that each of the ranks of one machine can have, once their processes run."""
    return max(0, available_bytes - (num_ranks - 1) * RANK_PROCESS_BYTES) // num_ranks


def plan_memory(config: ResolvedConfig, *, available_bytes: int, weight_bytes: int) -> MemoryPlan:
    """Sizes everything that is allocated.

    The budget is `memory_share` of what is available. Weights, the workspace of a step and one recurrent state per
    running request (and the reserved one) come first; KV blocks get the rest, but not more than `max_num_seqs`
    requests of `max_model_len` tokens can use. `kv_cache_memory_bytes` sets blocks and states together instead, and
    `num_blocks_override`, which is for tests, the number of blocks; then the longest request need not fit.

    Where prefixes are reused, a quarter of what is left beside the running states goes to checkpoints of states, or as
    much as was asked for.

    The plan is for one rank, and holds for each of them: their shares are equal. Ranks of one machine get equal parts
    of its memory.

    Args:
        config: the resolved configuration.
        available_bytes: what the machine or the process's control group can give to this rank.
        weight_bytes: size of this rank's parameters.

    Raises:
        CapacityError: it does not fit; names the settings to change.
    """
    plan = _Division(config, available_bytes, weight_bytes).plan()
    if config.cache.num_blocks_override is None and plan.max_cached_tokens < plan.max_model_len:
        raise CapacityError(
            f"One request of --max-model-len {plan.max_model_len} tokens does not fit: the cache holds "
            f"{plan.max_cached_tokens} tokens. Lower --max-model-len to {plan.max_cached_tokens} or less, lower "
            f"--max-num-seqs (now {plan.max_num_seqs}), or raise {_size_flag(config)}."
        )
    return plan


def max_tokens_that_fit(config: ResolvedConfig, *, available_bytes: int, weight_bytes: int) -> int:
    """The largest `max_model_len` that `plan_memory` accepts, whatever the configuration's own is.

    Raises:
        CapacityError: not even one block of tokens fits.
    """
    window = config.model.context_window
    limits = dataclasses.replace(config.scheduler, max_model_len=window)
    config = dataclasses.replace(config, scheduler=limits)
    plan = _Division(config, available_bytes, weight_bytes, is_length_open=True).plan()
    return min(window, plan.max_cached_tokens)


class _Division:
    """One division of the memory; every step either succeeds or says what to change."""

    def __init__(
        self, config: ResolvedConfig, available_bytes: int, weight_bytes: int, *, is_length_open: bool = False
    ) -> None:
        limits, cache = config.scheduler, config.cache
        if config.tensor_parallel_size > 1:
            own_shape = rank_model(config.model, config.tensor_parallel_size)
            config = dataclasses.replace(config, model=own_shape)
        self._config = config
        self._is_length_open = is_length_open
        self._spec: CacheSpec = planned_spec(config.model, cache)
        self._available_bytes = available_bytes
        self._weight_bytes = weight_bytes
        self._workspace_bytes = workspace_bytes(config, self._spec)
        self._num_states = limits.max_num_seqs + 1 if self._spec.has_states else 0
        self._states_bytes = self._num_states * self._spec.state_bytes
        self._has_checkpoints = config.prefix_cache is not None and self._spec.has_states

    def plan(self) -> MemoryPlan:
        """Divides; at least one block of tokens fits afterwards."""
        limits = self._config.scheduler
        num_blocks = self._num_blocks()
        plan = MemoryPlan(
            available_bytes=self._available_bytes,
            budget_bytes=self._budget_bytes(num_blocks),
            weight_bytes=self._weight_bytes,
            workspace_bytes=self._workspace_bytes,
            block_size=self._spec.block_size,
            block_bytes=self._spec.block_bytes,
            num_blocks=num_blocks,
            state_bytes=self._spec.state_bytes,
            num_states=self._num_states,
            logits_chunk_rows=logits_chunk_rows(self._config),
            max_num_seqs=limits.max_num_seqs,
            max_model_len=limits.max_model_len,
            num_checkpoints=self._num_checkpoints(num_blocks),
            arena_bytes=arena_bytes(self._config),
            graph_bytes=graph_bytes(self._config),
        )
        if plan.total_bytes > self._available_bytes:
            raise CapacityError(
                f"{_mib(plan.total_bytes)} are needed and {_mib(self._available_bytes)} are available: lower "
                f"{_size_flag(self._config)}, --max-num-seqs or --max-num-batched-tokens."
            )
        return plan

    def _num_blocks(self) -> int:
        """Size of the block pool, the reserved block included."""
        cache, limits = self._config.cache, self._config.scheduler
        if cache.num_blocks_override is not None:
            num_blocks = cache.num_blocks_override
        else:
            most = limits.max_num_seqs * self._spec.num_blocks_for(limits.max_model_len) + 1
            if self._config.prefix_cache is not None:
                most = 2 * most - 1  # as much again for what later requests may begin from
            fitting = self._blocks_and_states_bytes() - self._states_bytes
            fitting -= self._checkpoints_bytes(fitting)
            if fitting < 0:
                raise CapacityError(
                    f"{self._num_states} recurrent states of {_mib(self._spec.state_bytes)} (--max-num-seqs "
                    f"{limits.max_num_seqs} and one) do not fit: {_mib(fitting + self._states_bytes)} are left for "
                    f"them. Lower --max-num-seqs or raise {_size_flag(self._config)}."
                )
            num_blocks = min(most, fitting // self._spec.block_bytes) if self._spec.block_bytes else most
        if num_blocks < 2:
            raise CapacityError(
                f"Not even one KV block of {self._spec.block_size} tokens fits beside the reserved one. Raise "
                f"{_size_flag(self._config)}, or lower --max-num-seqs (now {limits.max_num_seqs})."
            )
        return num_blocks

    def _checkpoints_bytes(self, left_bytes: int) -> int:
        """What checkpoints take of the memory that is left for blocks and them."""
        if not self._has_checkpoints or left_bytes <= 0:
            return 0
        assert self._config.prefix_cache is not None
        wanted = self._config.prefix_cache.state_bytes
        if wanted is None:
            wanted = int(left_bytes * CHECKPOINT_SHARE)
            if not self._is_length_open:
                longest = self._spec.num_blocks_for(self._config.scheduler.max_model_len) + 1
                wanted = min(wanted, max(0, left_bytes - longest * self._spec.block_bytes))
        return wanted // self._spec.state_bytes * self._spec.state_bytes

    def _num_checkpoints(self, num_blocks: int) -> int:
        """Not more than there are places of them in all blocks."""
        if not self._has_checkpoints:
            return 0
        if self._config.cache.num_blocks_override is not None:
            size_bytes = int(num_blocks * self._spec.block_bytes * CHECKPOINT_SHARE)
            assert self._config.prefix_cache is not None
            size_bytes = self._config.prefix_cache.state_bytes or max(size_bytes, self._spec.state_bytes)
        else:
            size_bytes = self._checkpoints_bytes(self._blocks_and_states_bytes() - self._states_bytes)
        most = num_blocks * self._spec.block_size // CHECKPOINT_GRID
        return min(most, size_bytes // self._spec.state_bytes)

    def _blocks_and_states_bytes(self) -> int:
        """What is left for blocks and states, or was given for them."""
        given = self._config.cache.kv_cache_memory_bytes
        if given is not None:
            return given
        left = self._shared_bytes() - self._weight_bytes - self._workspace_bytes
        if left < 0:
            tokens = self._config.scheduler.max_num_batched_tokens
            raise CapacityError(
                f"The weights take {_mib(self._weight_bytes)} and a step of --max-num-batched-tokens {tokens} takes "
                f"{_mib(self._workspace_bytes)}, but the budget is {_mib(self._shared_bytes())} (share "
                f"{self._config.cache.memory_share:g} of {_mib(self._available_bytes)}). Raise "
                f"{SHARE_FLAG}, lower --max-num-batched-tokens, or choose a smaller model."
            )
        return left

    def _shared_bytes(self) -> int:
        return int(self._available_bytes * self._config.cache.memory_share)

    def _budget_bytes(self, num_blocks: int) -> int:
        """The share; with an explicit size, what that size comes to."""
        cache = self._config.cache
        fixed = self._weight_bytes + self._workspace_bytes
        if cache.num_blocks_override is not None:
            checkpoints_bytes = self._num_checkpoints(num_blocks) * self._spec.state_bytes
            return fixed + self._states_bytes + num_blocks * self._spec.block_bytes + checkpoints_bytes
        if cache.kv_cache_memory_bytes is not None:
            return fixed + cache.kv_cache_memory_bytes
        return self._shared_bytes()


def _size_flag(config: ResolvedConfig) -> str:
    """The flag that sets the size of the cache as things stand."""
    if config.cache.num_blocks_override is not None:
        return "--num-gpu-blocks-override"
    return SHARE_FLAG if config.cache.kv_cache_memory_bytes is None else "--kv-cache-memory-bytes"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.1f} MiB"
