"""`qanat plan`: what a start would do, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qanat.cli.command import MODEL_WORD, Command, help_parser, read_invocation, wants_help
from qanat.cli.terminal import check_template, decision_lines, echo, require_engine, show
from qanat.config.engine_config import GROUPS, OPTIONS, EngineConfig
from qanat.config.env import wanted_instruction_set
from qanat.config.options import option
from qanat.config.packed_cache import cache_root
from qanat.config.prepare import Prepared, prepare
from qanat.config.processors import number_ranges
from qanat.config.replicas import CORE_PROCESS_BYTES, replica_bytes
from qanat.config.resolved import ResolvedConfig
from qanat.config.values import Kind
from qanat.core.decision import Decision

if TYPE_CHECKING:
    from qanat.executor.planning import StartPlan

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Plan."""

    json: bool = option(Kind.SWITCH, False, "Write JSON.")
    available_memory: int | None = option(
        Kind.BYTES,
        None,
        "Plan for a machine with so much free memory, e.g. 64GiB. Default: this machine.",
        minimum=1,
    )


COMMAND = Command(
    name="plan",
    summary="Show every setting with its reason, and the memory to the byte, without loading weights.",
    description=(
        "Shows what `qanat serve` with the same flags would do: every setting with its reason, where the memory\n"
        "goes to the byte, and how many requests of which length fit. No weights are loaded; a folder with only a\n"
        "config.json is enough."
    ),
    examples=(
        "qanat plan ./Qwen3.5-35B-A3B",
        "qanat plan ./Qwen3.5-35B-A3B --max-model-len 32k --available-memory 128GiB --json",
    ),
    groups=GROUPS,
    own=PlanOptions,
    word=MODEL_WORD,
    word_help="Folder or hub id of the model; the same as --model.",
)


@dataclass(frozen=True)
class Row:
    """A settled setting.

    Attributes:
        flag: the flag that sets it.
        value: what holds.
        reason: why.
    """

    flag: str
    value: object
    reason: str


def main(arguments: Sequence[str]) -> int:
    """Prints the plan.

    Args:
        arguments: the command line without `qanat plan`.

    Raises:
        QanatError: the start would fail, with the same message.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    invocation = read_invocation(COMMAND, arguments)
    require_engine(COMMAND.name)
    prepared = prepare(invocation.wishes, invocation.environment)
    check_template(prepared)
    from qanat.executor.planning import plan_start

    available_bytes = invocation.own.available_memory or prepared.machine.available_bytes
    start = plan_start(prepared.config, available_bytes=_own_bytes(prepared.config, available_bytes))
    decisions = [*prepared.decisions, *start.decisions]
    rows = list(settings(prepared.wishes, start.config, decisions))
    settled = {row.flag for row in rows}
    others = [decision for decision in decisions if decision.field not in settled]
    if invocation.own.json:
        echo(json.dumps(report(prepared, start, rows, others), indent=2, default=str))
    else:
        _print(prepared, start, rows, others)
    return 0


def _own_bytes(config: ResolvedConfig, available_bytes: int) -> int:
    """What one replica can have of so much memory."""
    num_replicas = config.parallel.num_local_replicas
    return replica_bytes(available_bytes, num_replicas) if num_replicas > 1 else available_bytes


def settings(wishes: EngineConfig, config: ResolvedConfig, decisions: Sequence[Decision]) -> Iterator[Row]:
    """Every resolved setting with its reason: a decision's, or that it was asked for, or that it is the default."""
    limits, cache, prefixes = config.scheduler, config.cache, config.prefix_cache
    values: dict[str, object] = {
        "model": config.model_path,
        "served_model_name": " ".join(config.served_model_names),
        "dtype": config.dtype,
        "quantization": config.quantization or None,
        "load_format": config.load_format,
        "seed": config.seed,
        "enable_prefix_caching": prefixes is not None,
        "prefix_cache_scope": wishes.prefix_cache_scope,
        "prefix_cache_state_bytes": prefixes.state_bytes if prefixes is not None else None,
        "prefix_cache_dir": (prefixes.folder or None) if prefixes is not None else None,
        "prefix_cache_dir_bytes": prefixes.folder_bytes if prefixes is not None else None,
        "packed_weights_cache": config.packed_cache is not None,
        "cache_dir": str(cache_root(wishes.cache_dir)),
        "cache_max_bytes": wishes.cache_max_bytes,
        "max_model_len": limits.max_model_len,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "scheduling_policy": limits.policy,
        "enable_chunked_prefill": limits.is_chunked_prefill_enabled,
        "async_scheduling": limits.is_overlapped,
        "long_prefill_token_threshold": limits.long_prefill_token_threshold,
        "max_decode_stall_s": limits.max_decode_stall_s,
        "max_num_queued_reqs": limits.max_waiting_requests,
        "max_num_queued_tokens": limits.max_waiting_tokens,
        "max_queue_wait_s": limits.max_queue_wait_s,
        "memory_share": cache.memory_share,
        "kv_cache_memory_bytes": cache.kv_cache_memory_bytes,
        "num_gpu_blocks_override": cache.num_blocks_override,
        "block_size": cache.block_size,
        "kv_cache_dtype": cache.kv_cache_dtype,
        "tensor_parallel_size": config.tensor_parallel_size,
        "data_parallel_size": config.parallel.data_parallel_size,
        "num_threads": config.num_threads,
        "cpu_binding": number_ranges(config.cpu_binding) or False,
        "compilation_config": config.graphs.as_flag(),
        "cudagraph_capture_sizes": list(config.graphs.sizes),
        "speculative_config": config.speculative.as_flag(),
        "enable_nan_check": config.is_nan_check_enabled,
        "max_logprobs": config.max_logprobs,
        "step_timeout_s": config.step_timeout_s,
        "init_timeout_s": config.init_timeout_s,
        "structured_outputs_config": config.structured.as_flag(),
    }
    for name, value in values.items():
        known = OPTIONS[name]
        is_asked = getattr(wishes, name) != known.default
        if name == "cudagraph_capture_sizes":  # may be said in --compilation-config too
            is_asked = config.graph_wishes.sizes is not None
        reason = "as asked" if is_asked else "default"
        for decision in decisions:
            if decision.field == known.flag:
                reason = decision.why
            elif str(decision.got).startswith(f"{known.flag} "):
                reason = f"{decision.field}: {decision.why}"
        yield Row(known.flag, value, reason)


def report(
    prepared: Prepared, start: StartPlan, rows: Sequence[Row], others: Sequence[Decision]
) -> dict[str, Any]:
    """The plan as JSON-ready values; sizes are bytes."""
    model, memory = prepared.config.model, start.memory
    return {
        "model": {
            "architecture": model.architecture,
            "num_full_attention_layers": model.num_full_attention_layers,
            "num_linear_attention_layers": model.num_linear_attention_layers,
            "context_window": model.context_window,
        },
        "machine": dataclasses.asdict(prepared.machine),
        "settings": [dataclasses.asdict(row) for row in rows],
        "decisions": [
            {"field": each.field, "wanted": each.wanted, "got": each.got, "why": each.why} for each in others
        ],
        "kernels": _kernels(start),
        "weights": [dataclasses.asdict(kind) for kind in start.weights.kinds] if start.weights else [],
        "num_ranks": start.config.tensor_parallel_size,
        "num_replicas": start.config.parallel.data_parallel_size,
        "memory": {
            **dataclasses.asdict(memory),
            "blocks_bytes": memory.blocks_bytes,
            "states_bytes": memory.states_bytes,
            "checkpoints_bytes": memory.checkpoints_bytes,
            "total_bytes": memory.total_bytes,
            "max_cached_tokens": memory.max_cached_tokens,
        },
        "capacity": [dataclasses.asdict(capacity) for capacity in memory.capacities()],
    }


def _print(prepared: Prepared, start: StartPlan, rows: Sequence[Row], others: Sequence[Decision]) -> None:
    model, machine = prepared.config.model, prepared.machine
    echo(f"Model    {model.architecture}: {_layers(start)}, window {model.context_window:,} tokens")
    sets = ", ".join(machine.instruction_sets) or "no vector extensions known"
    echo(f"Machine  {machine.platform}, {machine.num_cores} cores ({sets}), {machine.cpu_model or 'unknown'}")
    echo(f"Kernels  {_kernels(start)}")
    echo("\nSettings")
    _table([(row.flag, show(row.value) if row.value is not None else "-", row.reason) for row in rows])
    if others:
        echo("\nNamed at the start")
        for line in decision_lines(others):
            echo(f"  {line}")
    num_ranks, num_replicas = start.config.tensor_parallel_size, start.config.parallel.data_parallel_size
    shares = [f"{num_ranks} ranks"] if num_ranks > 1 else []
    shares += [f"{num_replicas} replicas"] if num_replicas > 1 else []
    echo("\nMemory" + "".join(f" of each of {share}" for share in shares))
    _table(list(_memory_lines(prepared, start)))
    echo("\nRequests that run at once" + (" on each of them" if num_replicas > 1 else ""))
    _table(
        [
            (f"{capacity.num_requests:,}", f"of {capacity.num_tokens:,} tokens, prompt and output")
            for capacity in start.memory.capacities()
        ]
    )


def _kernels(start: StartPlan) -> str:
    """Which kernels would run."""
    from qanat.kernels.providers import kernels_sentence

    return kernels_sentence(start.config.model, start.config.dtype, wanted_instruction_set())


def _layers(start: StartPlan) -> str:
    model = start.config.model
    parts = []
    if model.num_linear_attention_layers:
        parts.append(f"{model.num_linear_attention_layers} gated delta net")
    parts.append(f"{model.num_full_attention_layers} attention layers")
    experts = f", {model.moe.num_experts} experts of which {model.moe.top_k} work" if model.moe else ""
    return " and ".join(parts) + experts


def _stored(start: StartPlan) -> str:
    """How the weights are stored, for people."""
    sizes: dict[str, int] = {}
    for kind in start.weights.kinds if start.weights is not None else ():
        sizes[kind.stored or kind.name] = sizes.get(kind.stored or kind.name, 0) + kind.size_bytes
    parts = [f"{name} {size / MIB:,.1f} MiB" for name, size in sizes.items()]
    return ", ".join(parts)


def _memory_lines(prepared: Prepared, start: StartPlan) -> Iterator[tuple[str, str, str]]:
    memory = start.memory
    tokens = start.config.scheduler.max_num_batched_tokens
    yield _size("weights", memory.weight_bytes, _stored(start))
    yield _size("workspace", memory.workspace_bytes, f"bound of a step of {tokens:,} tokens")
    yield _size(
        "KV blocks",
        memory.blocks_bytes,
        f"{memory.num_blocks:,} blocks of {memory.block_size} tokens and {memory.block_bytes:,} bytes; "
        f"{memory.max_cached_tokens:,} tokens",
    )
    if memory.num_states:
        what = f"{memory.num_states:,} recurrent states of {memory.state_bytes:,} bytes"
        yield _size("states", memory.states_bytes, what)
    if memory.num_checkpoints:
        what = f"{memory.num_checkpoints:,} checkpoints of states for later requests"
        yield _size("checkpoints", memory.checkpoints_bytes, what)
    yield _size("total", memory.total_bytes, "")
    yield _size("budget", memory.budget_bytes, "")
    from qanat.worker.memory_plan import RANK_PROCESS_BYTES, rank_bytes

    num_ranks = start.config.tensor_parallel_size // start.config.parallel.num_nodes
    own_bytes = _own_bytes(start.config, prepared.machine.available_bytes)
    is_here = memory.available_bytes == rank_bytes(own_bytes, num_ranks)
    share = prepared.machine.memory_bound if is_here else "as asked"
    num_replicas = start.config.parallel.num_local_replicas
    if num_replicas > 1:
        share = f"1/{num_replicas}, less {CORE_PROCESS_BYTES // MIB} MiB for the replica's process: {share}"
    if num_ranks > 1:
        share = f"1/{num_ranks} of what {RANK_PROCESS_BYTES // MIB} MiB per further process leave: {share}"
    yield _size("available", memory.available_bytes, share)


def _size(name: str, size_bytes: int, what: str) -> tuple[str, str, str]:
    return name, f"{size_bytes:,} bytes = {size_bytes / MIB:,.1f} MiB", what


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns side by side; the last one is as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        echo("  " + "  ".join([*cells, row[-1]]).rstrip())
