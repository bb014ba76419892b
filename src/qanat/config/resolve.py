"""Wishes in, one frozen tree out, and a decision for everything that was derived or came out otherwise."""

from __future__ import annotations

import dataclasses

from qanat.config.binding import bound_processors
from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment
from qanat.config.graphs import read_graph_wishes
from qanat.config.limits import cache_limits, dtype_name, scheduler_limits
from qanat.config.machine import MachineInfo
from qanat.config.model_config import ModelConfig
from qanat.config.model_source import DEMO_NAME
from qanat.config.overlap import is_overlapped
from qanat.config.packed_cache import packed_cache_settings
from qanat.config.parallel import tensor_parallel_size
from qanat.config.prefix_cache import prefix_cache_settings
from qanat.config.profiler import profiler_settings
from qanat.config.quantization import settle_quantization
from qanat.config.replicas import parallel_settings, replica_bytes
from qanat.config.resolved import CacheLimits, ResolvedConfig, SchedulerLimits
from qanat.config.speculative import MTP, SpeculativeSettings, speculative_settings
from qanat.config.structured import StructuredSettings, structured_settings
from qanat.config.unbuilt import check_refused, decide_unbuilt
from qanat.config.values import Kind, read_text
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

DEFAULT_INIT_TIMEOUT_S = 600.0
DEFAULT_STEP_TIMEOUT_S = 120.0

SMALL_HIDDEN_SIZE = 256
"""Up to this width one thread is the default: see the measurements in docs/decisions.md."""


def resolve(
    wishes: EngineConfig,
    model: ModelConfig,
    machine: MachineInfo,
    environment: Environment,
    *,
    model_path: str,
    quantization: str = "",
) -> tuple[ResolvedConfig, list[Decision]]:
    """Settles every setting. What depends on the size of the weights is settled by `qanat.executor.planning`.

    Args:
        wishes: what was asked for, already filled from variables (`qanat.config.honour`).
        model: the checkpoint's shape.
        machine: what this machine can give.
        environment: variables of vLLM.
        model_path: the checkpoint's folder.
        quantization: how the checkpoint is, "" if it is not.

    Raises:
        ConfigError: wishes that cannot be fulfilled, with what to change.
        CheckpointError: the checkpoint is quantised in a way that is not read.
    """
    check_refused(wishes)
    said = [*wishes.notes, *environment.decisions, *decide_unbuilt(wishes)]
    dtype = _dtype(wishes, model, said)
    num_ranks = tensor_parallel_size(wishes, model, machine, said)
    num_here = num_ranks // wishes.nnodes
    speculative, model = _speculation(wishes, model, num_ranks, said)
    parallel = parallel_settings(wishes, machine, num_here, said)
    quantization = settle_quantization(wishes, quantization, dtype, said)
    num_local = parallel.num_local_replicas
    num_threads = _num_threads(wishes, model, machine, environment, (num_here, num_local), said)
    limits, unset = _scheduler(wishes, model, machine, environment, num_threads * num_here * num_local, said)
    return ResolvedConfig(
        model_path=model_path,
        served_model_names=wishes.served_model_name or (wishes.model or DEMO_NAME,),
        model=model,
        dtype=dtype,
        scheduler=limits,
        cache=_cache_limits(wishes, dtype, machine, num_local, speculative, said),
        load_format=wishes.load_format,
        quantization=quantization,
        seed=wishes.seed,
        num_threads=num_threads,
        cpu_binding=bound_processors(wishes, machine, num_threads, num_here * num_local, said),
        is_nan_check_enabled=wishes.enable_nan_check,
        max_logprobs=wishes.max_logprobs,
        step_timeout_s=float(wishes.step_timeout_s or DEFAULT_STEP_TIMEOUT_S),
        init_timeout_s=float(wishes.init_timeout_s or DEFAULT_INIT_TIMEOUT_S),
        tensor_parallel_size=num_ranks,
        parallel=parallel,
        open_limits=unset,
        profiler=profiler_settings(wishes.profiler_config, said),
        packed_cache=packed_cache_settings(wishes, said),
        prefix_cache=prefix_cache_settings(wishes, model, said),
        structured=_structured(wishes, said),
        graph_wishes=read_graph_wishes(wishes, said),
        speculative=speculative,
    ), said


def _scheduler(
    wishes: EngineConfig,
    model: ModelConfig,
    machine: MachineInfo,
    environment: Environment,
    num_computing: int,
    said: list[Decision],
) -> tuple[SchedulerLimits, tuple[str, ...]]:
    """The scheduler's settings, and the names of those that nobody set, beside so many threads that compute."""
    limits, unset = scheduler_limits(wishes, model, environment, said)
    is_ahead = is_overlapped(wishes, model, machine, num_computing, said)
    return dataclasses.replace(limits, is_overlapped=is_ahead), unset


def _speculation(
    wishes: EngineConfig, model: ModelConfig, num_ranks: int, said: list[Decision]
) -> tuple[SpeculativeSettings, ModelConfig]:
    """How drafts are made, and the model with the layers that make them."""
    settings = speculative_settings(wishes.speculative_config, model, num_ranks, said)
    model = dataclasses.replace(model, num_draft_layers=int(settings.method == MTP))
    if settings.eagle3 is not None:
        taps = settings.eagle3.tapped_layers
        model = dataclasses.replace(model, draft_layer=settings.eagle3.layer, tapped_layers=taps)
    return settings, model


def _structured(wishes: EngineConfig, said: list[Decision]) -> StructuredSettings:
    return structured_settings(wishes.structured_outputs_config, wishes.guided_decoding_backend, said)


def _cache_limits(
    wishes: EngineConfig,
    dtype: str,
    machine: MachineInfo,
    num_local: int,
    speculative: SpeculativeSettings,
    said: list[Decision],
) -> CacheLimits:
    """Of each replica of this host; several share its memory."""
    limits = cache_limits(wishes, dtype, said)
    if speculative.method:
        limits = dataclasses.replace(limits, num_held_rows=1 + speculative.num_tokens)
    if num_local <= 1:
        return limits
    return dataclasses.replace(limits, available_bytes=replica_bytes(machine.available_bytes, num_local))


def _dtype(wishes: EngineConfig, model: ModelConfig, said: list[Decision]) -> str:
    wanted = dtype_name(wishes.dtype)
    if wanted != "auto":
        return wanted
    said.append(Decision("--dtype", None, model.dtype, "the checkpoint's"))
    return model.dtype


def _num_threads(
    wishes: EngineConfig,
    model: ModelConfig,
    machine: MachineInfo,
    environment: Environment,
    num_ranks_and_replicas: tuple[int, int],
    said: list[Decision],
) -> int:
    """Of each rank: what was wished, else all cores but for small models; never more than the process has."""
    cores, wanted = machine.num_cores, wishes.num_threads
    if wanted is not None:
        if wanted > cores:
            why = f"this process may use {cores} cores; more threads would wait for each other"
            said.append(Decision("--num-threads", wanted, cores, why))
        return min(wanted, cores)
    variable = "VLLM_CPU_NUM_OF_RESERVED_CPU"
    kept = read_text(Kind.COUNT, [environment.honoured.get(variable, "0")], variable)
    assert isinstance(kept, int)
    if kept < 0:
        raise ConfigError(f"{variable}: {kept} is too small; the least is 0.", param=variable)
    num_ranks, num_replicas = num_ranks_and_replicas
    got = max(1, (cores - kept) // (num_ranks * max(1, num_replicas)))
    why = "the cores that this process may use"
    if num_replicas > 1:
        why += f", shared by {num_replicas} replicas" + (f" of {num_ranks} ranks" if num_ranks > 1 else "")
    elif num_ranks > 1:
        why += f", shared by {num_ranks} ranks"
    if kept > 0:
        why = f"{variable} keeps {kept} of {cores} cores free"
    elif got > 1 and model.hidden_size <= SMALL_HIDDEN_SIZE:
        got, why = (
            1,
            "the model is so small that threads gain little, and wait for each other on a busy machine",
        )
    said.append(Decision("--num-threads", None, got, why))
    return got
