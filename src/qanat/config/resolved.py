"""What holds after resolution: one frozen tree that nothing changes later."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from qanat.config.graphs import GraphSettings, GraphWishes
from qanat.config.model_config import ModelConfig
from qanat.config.packed_cache import PackedCacheSettings
from qanat.config.parallel_settings import ParallelSettings
from qanat.config.prefix_cache import PrefixCacheSettings
from qanat.config.profiler import ProfilerSettings
from qanat.config.speculative import SpeculativeSettings
from qanat.config.structured import StructuredSettings


@dataclass(frozen=True)
class SchedulerLimits:
    """Bounds of the scheduler.

    Attributes:
        max_num_batched_tokens: token budget of one step.
        max_num_seqs: requests that run at once; also the number of batch rows.
        max_model_len: longest prompt and output together, in tokens.
        policy: "fcfs" or "priority".
        max_waiting_requests: bound of the waiting queue.
        max_waiting_tokens: bound of the prompt tokens in the waiting queue.
        max_queue_wait_s: requests that would wait longer are refused; None waits as long as it takes.
        max_decode_stall_s: how long one step's prefill may hold running decodes up, in seconds.
        long_prefill_token_threshold: most prefill tokens of one request in one step; 0 is no bound.
        is_chunked_prefill_enabled: whether a prompt may be split over steps.
        is_overlapped: whether a step is scheduled while the one before computes.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    policy: str = "fcfs"
    max_waiting_requests: int = 2048
    max_waiting_tokens: int = 8_388_608
    max_queue_wait_s: float | None = None
    max_decode_stall_s: float = 0.5
    long_prefill_token_threshold: int = 0
    is_chunked_prefill_enabled: bool = True
    is_overlapped: bool = False


@dataclass(frozen=True)
class CacheLimits:
    """How the cache is sized.

    Attributes:
        block_size: tokens in one KV block.
        kv_cache_dtype: storage type's name of the KV blocks.
        conv_dtype: of the conv state; empty for the same.
        memory_share: share of the machine's available memory that weights, cache and workspace may take.
        kv_cache_memory_bytes: bytes for blocks and states; overrides the share.
        num_blocks_override: number of blocks; overrides both.
        num_held_rows: most rows of a request that a step verifies: one more than the drafts; 0 without speculation.
        available_bytes: what this replica can have of the machine's memory, settled before the first of several starts;
            None looks when the start begins.
    """

    block_size: int = 64
    kv_cache_dtype: str = "bfloat16"
    conv_dtype: str = ""
    memory_share: float = 0.5
    kv_cache_memory_bytes: int | None = None
    num_blocks_override: int | None = None
    num_held_rows: int = 0
    available_bytes: int | None = None


@dataclass(frozen=True)
class ResolvedConfig:
    """Everything the engine process needs to start.

    Attributes:
        model_path: local folder with config.json, weights and tokenizer.
        served_model_names: names that clients may use; the first is the one reported.
        model: parsed config.json.
        dtype: computation and weight type's name.
        load_format: "auto"/"safetensors" or "dummy".
        quantization: how weights are stored: a format of checkpoints ("ascend", "compressed-tensors", "fp8", "gptq"), a
            scheme that is made while loading ("w8a8", "w4a8"), or "" for none.
        seed: base of the seeds of dummy weights and of requests without one; None draws from the system.
        scheduler: see SchedulerLimits.
        cache: see CacheLimits.
        num_threads: CPU threads for kernels.
        is_nan_check_enabled: end a request whose logits are not finite.
        num_valid_token_ids: ids from here on are padding rows of the vocabulary and never sampled; 0 samples all.
        max_logprobs: most alternatives per position that a request may ask for.
        step_timeout_s: /health fails when work is pending and no step ended for so long.
        init_timeout_s: the engine process must be ready within this.
        tensor_parallel_size: ranks that share every layer; each is a process of its own, but for the first.
        parallel: replicas, hosts and front ends.
        open_limits: of "max_model_len" and "max_num_seqs", those that nobody set; the memory plan may lower them.
        profiler: how profiles are recorded; None if that is switched off.
        structured: how forms of outputs are compiled.
        cpu_binding: processors that computing threads are pinned to, see `qanat.config.binding`; empty for none.
        packed_cache: where packed weights are kept between starts; None for nowhere.
        prefix_cache: how prefixes are reused; None for not at all.
        graph_wishes: what was asked for about graphs; `qanat.executor.planning` settles it.
        graphs: which steps run as graphs.
        speculative: who drafts tokens, and how many.
    """

    model_path: str
    served_model_names: tuple[str, ...]
    model: ModelConfig
    dtype: str
    scheduler: SchedulerLimits
    cache: CacheLimits
    load_format: str = "auto"
    quantization: str = ""
    seed: int | None = None
    num_threads: int = 1
    is_nan_check_enabled: bool = True
    num_valid_token_ids: int = 0
    max_logprobs: int = 20
    step_timeout_s: float = 120.0
    init_timeout_s: float = 600.0
    tensor_parallel_size: int = 1
    parallel: ParallelSettings = ParallelSettings()
    open_limits: tuple[str, ...] = ()
    profiler: ProfilerSettings | None = None
    structured: StructuredSettings = StructuredSettings()
    packed_cache: PackedCacheSettings | None = None
    cpu_binding: tuple[int, ...] = ()
    prefix_cache: PrefixCacheSettings | None = None
    graph_wishes: GraphWishes = GraphWishes()
    graphs: GraphSettings = GraphSettings()
    speculative: SpeculativeSettings = SpeculativeSettings()

    def of_replica(self, rank: int) -> ResolvedConfig:
        """The same with the processors of one replica of this host alone; none for those of other hosts."""
        if not self.cpu_binding:
            return self
        size = self.num_threads * (self.tensor_parallel_size // self.parallel.num_nodes)
        start = (
            (rank - self.parallel.start_rank) * size
            if rank in self.parallel.local_ranks
            else len(self.cpu_binding)
        )
        return dataclasses.replace(self, cpu_binding=self.cpu_binding[start : start + size])

    def processors_of(self, rank: int) -> tuple[int, ...]:
        """Of one rank of a replica that has been told apart: a processor for each thread; empty without binding."""
        ranks_here = self.tensor_parallel_size // self.parallel.num_nodes
        start = (rank - self.parallel.node_rank * ranks_here) * self.num_threads
        return self.cpu_binding[start : start + self.num_threads]
