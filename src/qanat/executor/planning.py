"""Fits open limits to the memory before anything is loaded: `qanat plan` prints what the start then does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from qanat.config.env import wanted_instruction_set
from qanat.config.graphs import settle_graphs
from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.core.errors import CapacityError
from qanat.core.memory_plan import MemoryPlan
from qanat.kernels.providers import why_no_graphs
from qanat.worker.memory_plan import max_tokens_that_fit, plan_memory, rank_bytes
from qanat.worker.weight_size import WeightSummary, weight_summary


@dataclass(frozen=True)
class StartPlan:
    """What a start will do.

    Attributes:
        config: with limits that nobody set lowered to what fits.
        memory: sizes of everything that each rank allocates.
        decisions: on how weights are stored, and on the limits that were lowered.
        weights: what is stored how.
    """

    config: ResolvedConfig
    memory: MemoryPlan
    decisions: tuple[Decision, ...]
    weights: WeightSummary | None = None


def plan_start(config: ResolvedConfig, *, available_bytes: int) -> StartPlan:
    """Sizes the weights on the meta device, lowers open limits, and divides the memory.

    Args:
        config: from `qanat.config.prepare`.
        available_bytes: what the machine or the process's control group can give to all ranks of one host together.

    Raises:
        CapacityError: what was asked for does not fit; names the settings to change.
        CheckpointError: the model's family has no code, or its quantisation is not known.
    """
    own_bytes = rank_bytes(available_bytes, config.tensor_parallel_size // config.parallel.num_nodes)
    weights = weight_summary(config)
    start = fit_limits(config, available_bytes=own_bytes, weight_bytes=weights.size_bytes)
    return dataclasses.replace(start, decisions=(*weights.decisions, *start.decisions), weights=weights)


def fit_limits(config: ResolvedConfig, *, available_bytes: int, weight_bytes: int) -> StartPlan:
    """`plan_start` for weights of a known size, with what one rank can have.

    A default number of requests gives way first: their recurrent states may take half of the cache at most. Then a
    default length is cut to what the KV blocks hold. Limits that somebody set are never changed.

    Raises:
        CapacityError: see `plan_start`.
    """
    sizes = _Sizes(available_bytes, weight_bytes)
    decisions: list[Decision] = []
    config, _ = _with_graphs(config)
    if "max_num_seqs" in config.open_limits:
        wanted = config.scheduler.max_num_seqs
        config = sizes.with_fewer_requests(config)
        got = config.scheduler.max_num_seqs
        if got < wanted:
            why = "recurrent states of more requests would take over half of the cache's memory"
            decisions.append(Decision("--max-num-seqs", None, got, why))
    if "max_model_len" in config.open_limits:
        wanted = config.scheduler.max_model_len
        got = min(wanted, sizes.max_tokens(config))
        if got < wanted:
            config = _with_limit(config, "max_model_len", got)
            why = f"the model's window is {wanted}, and the memory holds the KV of so many tokens"
            decisions.append(Decision("--max-model-len", None, got, why))
    config, about_graphs = _with_graphs(config)
    memory = sizes.plan(config)
    if config.prefix_cache is not None and memory.num_states and not memory.num_checkpoints:
        why = f"there is no room for a checkpoint of {memory.state_bytes:,} bytes beside the longest request"
        decisions.append(Decision("--enable-prefix-caching", True, False, why))
        config = dataclasses.replace(config, prefix_cache=None)
    return StartPlan(config, memory, (*decisions, *about_graphs))


def _with_graphs(config: ResolvedConfig) -> tuple[ResolvedConfig, list[Decision]]:
    """Settles which steps run as graphs, for the limits as they are."""
    why_not = why_no_graphs(config.model, config.dtype, wanted_instruction_set())
    limits = config.scheduler
    max_decode_rows = limits.max_num_seqs * (1 + config.speculative.num_tokens)
    graphs, said = settle_graphs(config.graph_wishes, max_decode_rows, limits.max_num_batched_tokens, why_not)
    return dataclasses.replace(config, graphs=graphs), said


@dataclass(frozen=True)
class _Sizes:
    available_bytes: int
    weight_bytes: int

    def plan(self, config: ResolvedConfig) -> MemoryPlan:
        return plan_memory(config, available_bytes=self.available_bytes, weight_bytes=self.weight_bytes)

    def max_tokens(self, config: ResolvedConfig) -> int:
        return max_tokens_that_fit(
            config, available_bytes=self.available_bytes, weight_bytes=self.weight_bytes
        )

    def with_fewer_requests(self, config: ResolvedConfig) -> ResolvedConfig:
        """The largest number of requests, up to the default, that leaves the KV blocks their half."""
        low, high = (
            1,
            config.scheduler.max_num_seqs,
        )  # one request is always tried, and then says what is wrong
        while low < high:
            middle = (low + high + 1) // 2
            if self._leaves_room(_with_limit(config, "max_num_seqs", middle)):
                low = middle
            else:
                high = middle - 1
        return _with_limit(config, "max_num_seqs", low)

    def _leaves_room(self, config: ResolvedConfig) -> bool:
        is_length_open = "max_model_len" in config.open_limits
        try:
            if is_length_open:
                config = _with_limit(config, "max_model_len", self.max_tokens(config))
            plan = self.plan(config)
        except CapacityError:
            return False
        cache_bytes = plan.budget_bytes - plan.weight_bytes - plan.workspace_bytes
        return 2 * plan.states_bytes <= cache_bytes


def _with_limit(config: ResolvedConfig, name: str, value: int) -> ResolvedConfig:
    return dataclasses.replace(config, scheduler=dataclasses.replace(config.scheduler, **{name: value}))
