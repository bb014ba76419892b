"""Flags and variables of an engine, where its release reads them."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.versions import Presence
from qanat.deploy.plan.engines import Engine
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.placing import put
from qanat.deploy.plan.subject import Subject, needs_download
from qanat.deploy.plan.wish import Topology, Wish

VARIABLES = (
    "HCCL_OP_EXPANSION_MODE",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "PYTORCH_NPU_ALLOC_CONF",
    "VLLM_ENGINE_READY_TIMEOUT_S",
    "HCCL_CONNECT_TIMEOUT",
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT",
)
PLAIN_FLAGS = ("--dtype", "--load-format", "--mamba-ssm-cache-dtype")
"""Flags that some chips and weights ask for."""
COMPILATION = "ascend_compilation_config"
COMPILATION_KEYS = ("enable_npugraph_ex", "fuse_norm_quant")
"""Keys of it that some chips ask to be off."""
OPEN_EULER = "openeuler"


def engine_flags(
    engine: Engine, wish: Wish, subject: Subject, topology: Topology, served_name: str, knowledge: Knowledge
) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags of `vllm serve` and variables that are the same on every node of an engine.

    Raises:
        ImpossibleWish: the release does not know a flag that the wish needs.
    """
    limits, switches, shape = engine.limits, engine.switches, engine.shape
    flags: dict[str, Any] = {
        "served-model-name": served_name,
        "tensor-parallel-size": shape.tp,
        "data-parallel-size": shape.dp,
    }
    if topology is Topology.RAY:
        flags["distributed-executor-backend"] = "ray"
    if switches.is_expert_parallel:
        flags["enable-expert-parallel"] = True
    flags["max-model-len"] = limits.max_model_len
    flags["max-num-seqs"] = limits.max_num_seqs
    flags["max-num-batched-tokens"] = limits.max_num_batched_tokens
    flags["gpu-memory-utilization"] = engine.share
    flags["enable-prefix-caching"] = switches.prefix_caching
    if subject.weights.variant != "bf16":
        flags["quantization"] = engine.advice.take("--quantization")
    for name in PLAIN_FLAGS:
        value = engine.advice.take(name)
        if value is not None:
            flags[name.removeprefix("--")] = value
    if wish.language_model_only and subject.model.has_vision:
        _check_flag("--language-model-only", wish, subject, knowledge)
        flags["language-model-only"] = True
    speculation = engine.speculation.flag()
    if speculation is not None:
        flags["speculative-config"] = speculation
    if switches.mode == "NONE":
        flags["enforce-eager"] = True
    else:
        flags["compilation-config"] = {
            "cudagraph_mode": switches.mode,
            "cudagraph_capture_sizes": list(engine.sizes),
        }
    _asynchronous(engine, flags)
    keys, env = _switches(engine, subject, knowledge)
    if keys:
        flags["additional-config"] = keys
    flags |= _parsers(engine, subject, knowledge)
    return flags, {**_variables(engine, wish, subject), **env}


def _check_flag(name: str, wish: Wish, subject: Subject, knowledge: Knowledge) -> None:
    table = knowledge.serve_flags
    if table.presence(name, subject.version.base) is not Presence.PRESENT:
        since = table.entries[name].since
        why = f"{name} is not known to {subject.version}; it is from vLLM {since} on."
        candidates = [msgspec.structs.replace(wish, language_model_only=False)]
        raise ImpossibleWish(why, param=name, candidates=candidates)


def _asynchronous(engine: Engine, flags: dict[str, Any]) -> None:
    is_wanted = engine.advice.take("--async-scheduling")
    if is_wanted and engine.speculation.drafter is None:
        flags["async-scheduling"] = True
    elif is_wanted:
        reason = "this release cannot schedule ahead with speculation"
        engine.advice.reckon("--async-scheduling", False, reason, "an image from 0.17")


def _switches(
    engine: Engine, subject: Subject, knowledge: Knowledge
) -> tuple[dict[str, Any], dict[str, str]]:
    """Keys of --additional-config, and variables of releases that have no key yet."""
    advice, switches = engine.advice, engine.switches
    wanted: dict[str, Any] = {"enable_cpu_binding": bool(advice.take("enable_cpu_binding"))}
    if switches.flashcomm1:
        wanted["enable_flashcomm1"] = True
    if switches.fused_mc2:
        wanted["enable_fused_mc2"] = 1
    if switches.overlap:
        wanted["multistream_overlap_shared_expert"] = True
    if engine.role == "decode" and advice.take("recompute_scheduler_enable"):
        wanted["recompute_scheduler_enable"] = True
    keys: dict[str, Any] = {}
    env: dict[str, str] = {}
    for name, value in wanted.items():
        if not put(name, value, subject.version, knowledge, keys, env):
            advice.reckon(name, "not set", f"{subject.version} does not have it")
    for key in COMPILATION_KEYS:
        if advice.take(f"{COMPILATION}.{key}") is False:
            keys.setdefault(COMPILATION, {})[key] = False
    return keys, env


def _parsers(engine: Engine, subject: Subject, knowledge: Knowledge) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    name = subject.model.name.lower()
    for parser in knowledge.parsers.entries.values():
        if parser.role == "tool" and re.match(parser.models, name):
            flags["enable-auto-tool-choice"] = True
            flags["tool-call-parser"] = parser.name
            engine.advice.compute("--tool-call-parser", parser.name)
            break
    flags["reasoning-parser"] = engine.advice.take("--reasoning-parser")
    return flags


def _variables(engine: Engine, wish: Wish, subject: Subject) -> dict[str, str]:
    env = {"HCCL_BUFFSIZE": str(engine.buffer_mib)} if engine.shape.ranks > 1 else {}
    if engine.shape.ranks == 1:
        engine.advice.notes.pop("HCCL_BUFFSIZE", None)
    for name in VARIABLES:
        value = engine.advice.take(name)
        if value is not None:
            env[name] = str(value)
    preload = engine.advice.take("LD_PRELOAD")
    if isinstance(preload, dict):
        path = preload["openEuler" if OPEN_EULER in subject.image else "Ubuntu"]
        engine.advice.compute("LD_PRELOAD", path)
        env["LD_PRELOAD"] = path
    if needs_download(wish) and subject.is_published:
        env["VLLM_USE_MODELSCOPE"] = str(engine.advice.take("VLLM_USE_MODELSCOPE"))
    return env
