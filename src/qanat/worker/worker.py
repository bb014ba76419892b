"""One device's share of the engine: model, cache tensors and runner."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from qanat.cache.spec import planned_spec
from qanat.config.env import wanted_instruction_set
from qanat.config.huge_pages import huge_page_setting
from qanat.config.prefix_identity import prefix_folder
from qanat.config.processors import number_ranges
from qanat.config.resolved import ResolvedConfig
from qanat.config.sharding import rank_model
from qanat.core.affinity import bind_thread
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.memory_plan import MemoryPlan
from qanat.core.prefix_entry import PrefixOrder
from qanat.kernels.host_group import HostNodeGroup
from qanat.kernels.native.arena import use_step_arena
from qanat.kernels.providers import choose_providers, is_native, kernels_sentence, op_table, try_reference
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from qanat.models.eagle3_loader import dummy_eagle3, load_eagle3
from qanat.models.huge_pages import copy_in_background
from qanat.models.loader import load_model
from qanat.models.quantised import open_scheme
from qanat.platforms.base import Platform
from qanat.platforms.cpu import CpuPlatform
from qanat.platforms.groups import ParallelGroup, SingleGroup
from qanat.worker.cache_tensors import DTYPES, allocate_cache
from qanat.worker.drafters.base import DraftModel
from qanat.worker.drafters.choice import drafter_maker
from qanat.worker.graphs.maker import NativeGraphMaker
from qanat.worker.load_bar import LoadBar
from qanat.worker.memory_plan import MIB, plan_memory, rank_bytes
from qanat.worker.model_runner import ModelRunner, RunnerLimits
from qanat.worker.prefix_files import PrefixFiles
from qanat.worker.profiler import Profiler
from qanat.worker.weight_size import weight_bytes

logger = logging.getLogger(__name__)


class Worker:
    """Loads the model and computes steps. Not thread-safe.

    Args:
        config: the resolved configuration.
        memory_plan: from `plan_memory`; None makes it from what is available now.
        platform: the device.
        matcher_factory: for requests whose output has a form; without it there may be none.
        group: the ranks that share the model; None for one.

    Attributes:
        memory_plan: what `load` allocates.
        profiler: records steps when it is told to.

    Raises:
        CapacityError: the model or its cache does not fit.
    """

    def __init__(
        self,
        config: ResolvedConfig,
        memory_plan: MemoryPlan | None = None,
        platform: Platform | None = None,
        matcher_factory: MatcherFactory | None = None,
        group: ParallelGroup | None = None,
    ) -> None:
        self._config = config
        self._matcher_factory = matcher_factory
        self._platform: Platform = platform or CpuPlatform()
        self._group: ParallelGroup = group or SingleGroup()
        self.memory_plan = memory_plan or plan_memory(
            config,
            available_bytes=rank_bytes(self._platform.memory().available_bytes, config.tensor_parallel_size),
            weight_bytes=weight_bytes(config),
        )
        self.profiler = Profiler(config.profiler, rank=self._group.rank if self._group.size > 1 else None)
        self._runner: ModelRunner | None = None
        self._prefixes: PrefixFiles | None = None

    def load(self) -> None:
        """Chooses kernels, loads the weights, allocates the cache.

        Raises:
            CheckpointError: the model folder cannot be served.
            ConfigError: this processor does not have the instruction set that is forced.
        """
        config, plan = self._config, self.memory_plan
        self._choose_kernels(config.processors_of(self._group.rank))
        own_shape = rank_model(config.model, self._group.size)
        spec = planned_spec(own_shape, config.cache)
        num_states = plan.num_states + plan.num_checkpoints
        cache = allocate_cache(spec, plan.num_blocks, num_states, self._platform.device)
        limits = RunnerLimits(
            num_rows=config.scheduler.max_num_seqs,
            max_blocks_per_row=spec.num_blocks_for(config.scheduler.max_model_len),
            block_size=spec.block_size,
            logits_chunk_rows=plan.logits_chunk_rows,
            num_valid_token_ids=config.num_valid_token_ids or config.model.vocab_size,
            is_nan_check_enabled=config.is_nan_check_enabled,
        )
        use_step_arena(plan.arena_bytes if is_native() else 0)
        maker = NativeGraphMaker(plan.graph_bytes) if config.graphs.sizes else None
        folder = prefix_folder(config, self.op_table(), self._group.rank)
        self._prefixes = PrefixFiles(folder, cache, self._group)
        model = self._load_weights()
        self._runner = ModelRunner(
            model,
            cache,
            limits,
            self._matcher_factory,
            self._group,
            config.graphs,
            maker,
            drafter_maker(config, self._draft_model(model), cache, limits.logits_chunk_rows, maker),
        )

    def execute(self, batch: ScheduledBatch) -> StepOutput:
        """Computes one step.

        Raises:
            IntegrityError: the batch contradicts what the rows hold.
        """
        assert self._runner is not None, "load() comes first"
        if self.profiler.is_running:
            # Ranks begin and end their profiles at steps of their own, and must exchange the same shapes: graphs stay.
            is_alone = self._group.size == 1
            return self.profiler.run(batch, self._runner.run_profiled if is_alone else self._runner.run)
        return self._runner.run(batch)

    def use_graphs(self, mode: str) -> None:
        """Changes the mode of graphs from the next step on, for measurements; the sizes stay as planned.

        Args:
            mode: one of `qanat.config.graphs.MODES`.
        """
        assert self._runner is not None, "load() comes first"
        self._runner.use_graphs(dataclasses.replace(self._config.graphs, mode=mode))

    @property
    def is_keeping(self) -> bool:
        """True while a piece of the prefix cache is on its way to the disk."""
        return self._prefixes is not None and self._prefixes.is_writing

    def keep(self, order: PrefixOrder) -> bool:
        """Carries out an order about what is kept on disk; see `qanat.worker.prefix_files`."""
        assert self._prefixes is not None, "load() comes first"
        return self._prefixes.obey(order)

    def op_table(self) -> list[str]:
        """Provider of each kernel, one line per op."""
        return op_table(self._config.model, self._config.dtype)

    def _choose_kernels(self, processors: tuple[int, ...]) -> None:
        """Starts the threads that compute, each on a processor of its own if there are any to keep to.

        Threads of torch's own pool inherit all of these processors; this thread, which computes beside the native
        ones, keeps the first.
        """
        is_bound = bind_thread(processors)
        self._platform.set_num_threads(self._config.num_threads)
        wanted, model, dtype = wanted_instruction_set(), self._config.model, self._config.dtype
        choose_providers(self._config.num_threads, wanted, processors)
        if self._group.rank == 0:
            logger.info("Kernels: %s.", kernels_sentence(model, dtype, wanted))
        try_reference(model, dtype)
        if processors and not (is_bound and bind_thread(processors[:1])):
            logger.warning(
                "The system does not allow --cpu-binding to processors %s.", number_ranges(processors)
            )

    def _model_group(self) -> ParallelGroup:
        """What the layers exchange over: graphs leave exchanges to Python."""
        return self._group if self._group.size == 1 else HostNodeGroup(self._group)

    def _load_weights(self) -> CausalLM:
        config, dtype = self._config, DTYPES[self._config.dtype]
        if config.load_format == "dummy":
            scheme = open_scheme(config.quantization, Path(config.model_path), config.model, None)
            return load_dummy(
                config.model, dtype, config.seed or 0, self._platform.device, self._model_group(), scheme
            )
        with LoadBar("loading weights", is_shown=self._group.rank == 0) as bar:
            model, report = load_model(
                config.model_path,
                config.model,
                dtype,
                self._platform.device,
                bar.update,
                self._model_group(),
                config.quantization,
                config.packed_cache.open() if config.packed_cache is not None else None,
            )
        logger.info("%s", report)
        if report.kept is not None:
            copy_in_background(report.kept, self._why_mapped)
        return model

    def _draft_model(self, model: CausalLM) -> DraftModel | None:
        """What drafts for the model: its own layer, one that is loaded here, or nothing with weights."""
        config, eagle3 = self._config, self._config.speculative.eagle3
        if eagle3 is None:
            return model if config.model.num_draft_layers else None
        dtype, device = DTYPES[config.dtype], self._platform.device
        if config.load_format == "dummy":
            return dummy_eagle3(eagle3, model, dtype, config.seed or 0, device)
        return load_eagle3(eagle3, model, dtype, device)

    def _why_mapped(self) -> str:
        """Why packed weights stay in the file's pages; empty if there is room for a copy within the plan."""
        place = self._config.parallel
        if place.num_local_replicas > 1:
            return "the replicas of this host share the pages"
        if huge_page_setting() == "never":
            return "transparent_hugepage is never"
        num_ranks = self._config.tensor_parallel_size // place.num_nodes
        available_bytes = self._platform.memory().available_bytes
        if available_bytes < num_ranks * self.memory_plan.total_bytes:
            return f"{available_bytes / MIB:,.1f} MiB are available now, less than the plan holds beside their pages"
        return ""
