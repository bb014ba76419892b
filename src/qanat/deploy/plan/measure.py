"""Graphs, communication buffer, share of the memory and what it goes to, for given limits."""

from __future__ import annotations

import math

from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.engines import Engine, Limits, Switches, Task
from qanat.deploy.plan.graphs import (
    capture_sizes,
    fitting_sizes,
    step_of,
)
from qanat.deploy.plan.shape import Shape
from qanat.deploy.plan.subject import Subject
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.communicators import mc2_need_mib, recommended_buffer_mib
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
        is_mc2=_uses_mc2(subject, shape, switches),
        is_fused_mc2=switches.fused_mc2,
        language_model_only=task.wish.language_model_only,
        state_element_bytes=task.state_element_bytes,
    )


def _uses_mc2(subject: Subject, shape: Shape, switches: Switches) -> bool:
    """Whether experts exchange tokens by dispatch and combine: not on few A2, nor on chips without it."""
    if not switches.is_expert_parallel:
        return False
    return subject.chip.family != "310P" and (subject.chip.family != "A2" or shape.ranks >= 16)


def measure(task: Task, shape: Shape, limits: Limits, switches: Switches, advice: Advice) -> Engine:
    """Graphs, buffer, share and memory for given limits."""
    sizes, warnings = _graphs(task, shape, limits, switches, advice)
    layout = layout_of(task, shape, limits, switches, sizes)
    buffer_mib = recommended_buffer_mib(layout)
    largest = max(sizes, default=limits.max_num_seqs * (1 + task.speculation.num_tokens))
    advice.numbers |= {"largest": largest, "need": math.ceil(mc2_need_mib(layout))}
    share = _share(task, layout, buffer_mib, switches)
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
    sizes, limit = fitting_sizes(
        wanted, subject, switches.mode, groups, shape.dp > 1, is_aiv, has_draft, task.knowledge
    )
    if limit is None or len(sizes) == len(wanted):
        return sizes, ()
    num = f"{len(wanted)} sizes are thinned out to {len(sizes)}, as many as {switches.mode} graphs may have"
    return sizes, (f"{num} here; batches between them are padded.",)


def _share(task: Task, layout: Layout, buffer_mib: int, switches: Switches) -> float:
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
