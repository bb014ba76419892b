"""Graphs, communication buffer, share of the memory and what it goes to, for given limits."""

from __future__ import annotations

import math
from typing import Any

from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.engines import Engine, Limits, Switches, Task
from qanat.deploy.plan.graphs import (
    capture_sizes,
    few_sizes,
    fitting_sizes,
    step_of,
)
from qanat.deploy.plan.shape import Shape
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.communicators import (
    dispatch_need_mib,
    fused_need_mib,
    recommended_buffer_mib,
    uses_mc2,
)
from qanat.deploy.sizing.layout import Layout

GIB = 2**30
MAX_SHARE_WITH_GRAPHS = 0.92
LEAST_SHARE = 0.5


def layout_of(
    task: Task,
    shape: Shape,
    limits: Limits,
    switches: Switches,
    sizes: tuple[int, ...] = (),
    buffer_mib: int = 200,
    share: float = 0.9,
) -> Layout:
    """What the memory of an engine depends on, so far as it is decided."""
    subject = task.subject
    return Layout(
        model=subject.model,
        variant=subject.weights.variant,
        npu_bytes=visible_bytes(subject.chip, subject.memory_gib),
        tp=shape.tp,
        dp=shape.dp,
        expert_parallel=switches.is_expert_parallel,
        drafter=task.speculation.drafter,
        num_speculative_tokens=task.speculation.num_tokens,
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        gpu_memory_utilization=share,
        prefix_caching=switches.prefix_caching,
        capture_sizes=sizes,
        hccl_buffer_mib=buffer_mib,
        is_mc2=switches.is_expert_parallel and uses_mc2(subject.chip, subject.model, shape.ranks),
        is_fused_mc2=switches.fused_mc2,
        language_model_only=task.wish.language_model_only,
        state_element_bytes=task.state_element_bytes,
        has_full_mask=subject.chip.has_full_mask,
    )


def measure(task: Task, shape: Shape, limits: Limits, switches: Switches, advice: Advice) -> Engine:
    """Graphs, buffer, share and memory for given limits."""
    sizes, warnings = _graphs(task, shape, limits, switches, advice)
    layout = layout_of(task, shape, limits, switches, sizes)
    buffer_mib = recommended_buffer_mib(layout)
    advice.numbers |= _buffer_numbers(layout)
    share = _share(task, layout)
    layout = layout_of(task, shape, limits, switches, sizes, buffer_mib, share)
    memory = memory_of(layout, task.knowledge)
    return Engine(
        role=task.role,
        num_instances=task.num_instances,
        shape=shape,
        limits=limits,
        switches=switches,
        speculation=task.speculation,
        sizes=sizes,
        share=share,
        buffer_mib=buffer_mib,
        memory=memory,
        advice=advice,
        warnings=warnings,
    )


def _buffer_numbers(layout: Layout) -> dict[str, Any]:
    """What decides the buffer of HCCL: the practice that says so, the tokens of the step, and the MB it needs."""
    plain, fused = dispatch_need_mib(layout), fused_need_mib(layout)
    if max(plain, fused) == 0:
        return {"buffer": "HCCL_BUFFSIZE without MC2"}
    if fused > plain:
        numbers = {"largest": layout.max_num_batched_tokens, "need": math.ceil(fused)}
        return {"buffer": "HCCL_BUFFSIZE of fused MC2", **numbers}
    rows = layout.max_num_seqs * (1 + layout.num_speculative_tokens)
    largest = max(layout.capture_sizes, default=rows)
    return {"buffer": "HCCL_BUFFSIZE", "largest": largest, "need": math.ceil(plain)}


def _graphs(
    task: Task, shape: Shape, limits: Limits, switches: Switches, advice: Advice
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if switches.mode == "NONE":
        return (), ()
    if task.capture_sizes is not None:
        return task.capture_sizes, ()
    subject, k = task.subject, task.speculation.num_tokens
    step = step_of(shape.tp, k, switches.flashcomm1, switches.mode)
    largest = math.ceil(limits.max_num_seqs * (1 + k) / step) * step
    if largest > limits.max_num_batched_tokens:
        largest = limits.max_num_batched_tokens // step * step
    advice.numbers["step"] = step
    groups = sum(size > 1 for size in (shape.tp, shape.dp))
    groups += switches.is_expert_parallel + switches.overlap
    expansion = advice.find("HCCL_OP_EXPANSION_MODE")
    is_aiv = expansion is not None and expansion.value == "AIV"
    wanted = capture_sizes(step, largest)
    has_draft = task.speculation.drafter is not None
    practice = advice.find("capture limit")
    if practice is not None:
        few = few_sizes(wanted, int(str(practice.value)))
        reason = f"{practice.reason[0].upper()}{practice.reason[1:]}; batches between them are padded."
        return few, () if few == wanted else (f"{reason} ({practice.source})",)
    sizes, limit = fitting_sizes(
        wanted, subject, switches.mode, groups, shape.dp > 1, is_aiv, has_draft, task.knowledge
    )
    if limit is None or len(sizes) == len(wanted):
        return sizes, ()
    num = f"{len(wanted)} sizes are thinned out to {len(sizes)}, as many as {switches.mode} graphs may have"
    return sizes, (f"{num} here; batches between them are padded.",)


def _share(task: Task, layout: Layout) -> float:
    """--gpu-memory-utilization: practice, less where graphs and other things outside need more room."""
    stated = task.wish.gpu_memory_utilization
    if stated is not None:
        return stated
    practice, room = task.advice.find("--gpu-memory-utilization"), task.advice.find("head-room")
    most = float(str(practice.value)) if practice is not None else MAX_SHARE_WITH_GRAPHS
    spare = float(str(room.value)) * GIB if room is not None else 0
    memory = memory_of(layout, task.knowledge)
    outside = sum(item.size_bytes for item in memory.items if not item.is_in_budget)
    fitting = math.floor((memory.total_bytes - outside - spare) / memory.total_bytes * 100) / 100
    return max(LEAST_SHARE, min(most, fitting))
