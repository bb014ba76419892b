"""Sizes of graphs: few small ones for few clients, the full batch at the end, nothing that would be dropped."""

from __future__ import annotations

import math

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.versions import Version, is_in_range
from qanat.deploy.plan.subject import Subject
from qanat.deploy.sizing.capture import max_num_graphs, thin_out

FULL_MODES = ("FULL_DECODE_ONLY", "FULL", "FULL_AND_PIECEWISE")
PIECEWISE_MODES = ("PIECEWISE", "FULL_AND_PIECEWISE")
FEW_SIZES = 4
STRIDES = ((4, 1), (8, 2), (32, 4), (64, 8))
"""Distance between sizes, in steps, below a number of steps."""
LAST_STRIDE = 16
STREAMS_RULE, FOUR_SIZES_RULE, DIVISOR_RULE = "GRA008", "GRA009", "GRA015"
"""Rules of the linter whose versions say when streams, four sizes on 950, or a common divisor bound the list."""


def step_of(tp: int, k: int, has_flashcomm1: bool, mode: str) -> int:
    """Capture sizes are multiples of this: of 1 + k, and of the tensor parallel size with FlashComm1."""
    rows = 1 + k if mode in FULL_MODES else 1
    return math.lcm(tp if has_flashcomm1 else 1, rows)


def _is_in_force(rule_id: str, version: Version, knowledge: Knowledge) -> bool:
    rule = knowledge.rules[rule_id]
    return is_in_range(version, rule.since, rule.until)


def has_common_multiple(version: Version, tp: int, k: int, knowledge: Knowledge) -> bool:
    """Whether FlashComm1 and speculation agree on sizes: up to 0.26 one of TP and 1 + k must divide the other."""
    rows = 1 + k
    return max(tp, rows) % min(tp, rows) == 0 or not _is_in_force(DIVISOR_RULE, version, knowledge)


def capture_sizes(step: int, largest: int) -> tuple[int, ...]:
    """Multiples of `step` up to `largest`, dense where batches are small."""
    num_steps = largest // step
    counts, count = [], 1
    while count < num_steps:
        counts.append(count)
        stride = next((stride for below, stride in STRIDES if count < below), LAST_STRIDE)
        count += max(stride, count // 8)
    return tuple(step * one for one in (*counts, num_steps)) if num_steps else ()


def few_sizes(sizes: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """At most `limit` of the sizes, from a quarter of the largest up: smaller batches are padded to that one."""
    if len(sizes) <= limit:
        return sizes
    return thin_out(tuple(size for size in sizes if 4 * size >= sizes[-1]), limit)


def fitting_sizes(
    sizes: tuple[int, ...],
    subject: Subject,
    mode: str,
    groups: int,
    is_dp: bool,
    is_aiv: bool,
    has_draft: bool,
    knowledge: Knowledge,
) -> tuple[tuple[int, ...], int | None]:
    """The sizes within what streams and the chip allow, and that number; None if nothing limits them.

    Args:
        sizes: ascending.
        subject: model, chip and release.
        mode: cudagraph_mode.
        groups: of communication, see `max_num_graphs`.
        is_dp: the data parallel size is above 1.
        is_aiv: collectives run on the vector cores.
        has_draft: there is speculation.
        knowledge: facts.
    """
    if mode not in PIECEWISE_MODES:
        return sizes, None
    limit, model = None, subject.model
    if _is_in_force(STREAMS_RULE, subject.version, knowledge):
        most = max_num_graphs(model.num_layers, int(has_draft), groups, model.is_moe, is_dp, is_aiv)
        limit = max(1, most)
    elif subject.chip.family == "A5" and _is_in_force(FOUR_SIZES_RULE, subject.version, knowledge):
        limit = FEW_SIZES
    return (sizes, None) if limit is None else (thin_out(sizes, limit), limit)
