"""Whether an engine fits, with smaller limits where nobody asked for these; or why it does not."""

from __future__ import annotations

from qanat.deploy.plan.engines import Engine, Limits, Misfit, Task
from qanat.deploy.plan.limits import choose_limits, unit_of
from qanat.deploy.plan.measure import layout_of, measure
from qanat.deploy.plan.shape import Shape
from qanat.deploy.plan.switches import choose_switches
from qanat.deploy.sizing.cache_layout import cache_of

GIB = 2**30
LEAST_CONTEXT = 2048
"""Where nobody asked for a context, no shorter one is chosen to make a model fit."""


def settle(task: Task, shape: Shape) -> Engine | Misfit:
    """The engine of a shape, with everything decided."""
    advice = task.advice.sized(shape.tp, shape.dp)
    advice.numbers |= {
        "npus": task.subject.npus_per_node,
        "ranks": shape.dp * task.num_instances,
        "spread": shape.ranks,
        "window": task.window,
        "k": task.speculation.num_tokens,
    }
    switches = choose_switches(task, shape, advice)
    limits = choose_limits(task, shape, switches, advice)
    warnings: list[str] = []
    for _ in range(3):
        engine = measure(task, shape, limits, switches, advice)
        smaller = _shrunk(task, engine, limits, warnings)
        if smaller is None:
            break
        limits = smaller
    misfit = _misfit(task, engine)
    if misfit is not None:
        return misfit
    _note_limits(task, engine)
    return Engine(**{**vars(engine), "warnings": (*engine.warnings, *warnings)})


def _shrunk(task: Task, engine: Engine, limits: Limits, warnings: list[str]) -> Limits | None:
    """Smaller limits where nobody asked for these and they do not fit; None if there is nothing to do."""
    memory, wish = engine.memory, task.wish
    context, seqs = limits.max_model_len, limits.max_num_seqs
    if memory.longest_context < context and wish.max_model_len is None:
        shorter = memory.longest_context // 1024 * 1024
        if shorter >= LEAST_CONTEXT:
            warnings.append(
                f"The cache holds contexts of {shorter} tokens, so --max-model-len is lowered to it."
            )
            context = shorter
    elif memory.needed_pool_bytes > memory.pool_bytes and _may_shrink(task):
        fewer = _fitting_sequences(task, engine)
        if 0 < fewer < seqs:
            warnings.append(
                f"The cache has room for the states of {fewer} sequences, so --max-num-seqs is {fewer}."
            )
            seqs = fewer
    if (context, seqs) == (limits.max_model_len, limits.max_num_seqs):
        return None
    k = task.speculation.num_tokens
    tokens = limits.max_num_batched_tokens
    if task.role == "decode" and wish.max_num_batched_tokens is None:
        tokens = seqs * (1 + k)
    engine.advice.numbers["seqs"] = seqs
    return Limits(context, seqs, tokens)


def _may_shrink(task: Task) -> bool:
    is_stated = task.wish.concurrency is not None and task.role != "prefill"
    return not is_stated and task.max_num_seqs is None


def _fitting_sequences(task: Task, engine: Engine) -> int:
    """Sequences of which one is of the longest kind and the others have just begun."""
    cache = cache_of(layout_of(task, engine.shape, engine.limits, engine.switches))
    left = engine.memory.num_blocks - 1 - cache.blocks_for(engine.limits.max_model_len)
    fewer = 1 + left // cache.blocks_for(1)
    unit = unit_of(task, engine.shape, engine.switches)
    return max(0, fewer // unit * unit)


def _misfit(task: Task, engine: Engine) -> Misfit | None:
    """Why an engine does not fit; None if it does."""
    memory, limits, shape = engine.memory, engine.limits, engine.shape
    inside = sum(item.size_bytes for item in memory.items if item.is_in_budget)
    place = f"TP {shape.tp}, DP {shape.dp} on {shape.num_nodes} node{'s' if shape.num_nodes > 1 else ''}"
    missing = memory.needed_pool_bytes - memory.pool_bytes
    if memory.head_room_bytes < 0:
        outside = memory.total_bytes - memory.budget_bytes - memory.head_room_bytes
        why = (
            f"with --gpu-memory-utilization {engine.share:g} only {gib(memory.total_bytes - memory.budget_bytes)} "
            f"are left for graphs, fragments and uneven experts, which take {gib(outside)}"
        )
        return Misfit(shape, f"{why} ({place})", 0, 0, -memory.head_room_bytes)
    if memory.pool_bytes <= 0:
        weights = next(item for item in memory.items if item.name == "weights")
        why = (
            f"{gib(inside)} of an NPU are taken, {gib(weights.size_bytes)} of them by weights, and "
            f"{gib(memory.budget_bytes)} may be"
        )
        return Misfit(shape, f"{why} ({place})", 0, 0, missing)
    if memory.longest_context < limits.max_model_len:
        why = (
            f"{gib(memory.pool_bytes)} are left for the cache, enough for {memory.longest_context} tokens, and "
            f"--max-model-len is {limits.max_model_len}"
        )
        return Misfit(shape, f"{why} ({place})", memory.longest_context, 0, missing)
    if missing > 0:
        fitting = _fitting_sequences(task, engine)
        why = (
            f"{limits.max_num_seqs} sequences per rank, one of them {limits.max_model_len} tokens long, need "
            f"{gib(memory.needed_pool_bytes)} of cache, and {gib(memory.pool_bytes)} are left; {fitting} fit"
        )
        return Misfit(shape, f"{why} ({place})", memory.longest_context, fitting, missing)
    return None


def _note_limits(task: Task, engine: Engine) -> None:
    """Notes of what the numbers came to."""
    advice, limits, wish = engine.advice, engine.limits, task.wish
    advice.numbers |= {
        "seqs": limits.max_num_seqs,
        "block": engine.memory.block_tokens,
        "room": gib(engine.memory.head_room_bytes),
    }
    if wish.max_model_len is not None:
        advice.state("--max-model-len", limits.max_model_len)
    else:
        advice.compute("--max-model-len", limits.max_model_len)
    if task.max_num_seqs is not None:
        advice.state("--max-num-seqs", limits.max_num_seqs)
    else:
        advice.compute("--max-num-seqs", limits.max_num_seqs)
    if wish.concurrency is not None:
        advice.state("concurrency", wish.concurrency)
    if wish.max_num_batched_tokens is not None:
        advice.state("--max-num-batched-tokens", limits.max_num_batched_tokens)
    else:
        advice.compute("--max-num-batched-tokens", limits.max_num_batched_tokens)
    if wish.gpu_memory_utilization is not None:
        advice.state("--gpu-memory-utilization", engine.share)
    else:
        advice.compute("--gpu-memory-utilization", engine.share)
    if engine.sizes:
        advice.compute("cudagraph_capture_sizes", list(engine.sizes))
    advice.compute("HCCL_BUFFSIZE", engine.buffer_mib)


def gib(size_bytes: int) -> str:
    """A size in words."""
    return f"{size_bytes / GIB:.1f} GiB"
