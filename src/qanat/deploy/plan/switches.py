"""Options of an engine: experts, prefix caching, communication, graphs."""

from __future__ import annotations

from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.engines import Switches, Task
from qanat.deploy.plan.graphs import (
    FULL_MODES,
    has_common_multiple,
)
from qanat.deploy.plan.shape import Shape

MAX_FUSED_RANKS = 32


def choose_switches(task: Task, shape: Shape, advice: Advice) -> Switches:
    """Experts, prefix caching, communication and graphs of an engine."""
    model, wish = task.subject.model, task.wish
    is_spread = False
    if model.is_moe and shape.ranks > 1:
        is_spread = bool(advice.take("--enable-expert-parallel", wish.expert_parallel))
    prefix = bool(advice.take("--enable-prefix-caching", wish.prefix_caching))
    mode = str(advice.take("cudagraph_mode", task.mode)).upper()
    flashcomm1 = _flashcomm1(task, shape, is_spread, mode, advice)
    fused = False
    if model.is_moe:
        fused = bool(advice.take("enable_fused_mc2"))
        if fused and not is_spread:
            advice.reckon("enable_fused_mc2", 0, "experts are not spread whole over NPUs")
            fused = False
        elif fused and shape.ranks > MAX_FUSED_RANKS:
            advice.obey("enable_fused_mc2", 0, "MOE006")
            fused = False
    overlap = False
    if model.has_shared_expert:
        overlap = bool(advice.take("multistream_overlap_shared_expert"))
        if overlap and fused:
            advice.obey("multistream_overlap_shared_expert", False, "MOE003")
            overlap = False
    return Switches(is_spread, prefix, flashcomm1, fused, overlap, mode)


def _flashcomm1(task: Task, shape: Shape, is_spread: bool, mode: str, advice: Advice) -> bool:
    is_on = bool(advice.take("enable_flashcomm1"))
    if is_on and task.subject.model.is_moe and not is_spread:
        advice.obey("enable_flashcomm1", False, "MOE002")
        return False
    k = task.speculation.num_tokens
    if (
        is_on
        and mode in FULL_MODES
        and not has_common_multiple(task.subject.version, shape.tp, k, task.knowledge)
    ):
        advice.obey("enable_flashcomm1", False, "GRA015")
        return False
    return is_on
