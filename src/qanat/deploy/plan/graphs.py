"""Sizes of graphs: few small ones for few clients, the full batch at the end, nothing that would be dropped."""

from __future__ import annotations

import math

from qanat.deploy.knowledge.versions import Version, must_parse
from qanat.deploy.plan.subject import Subject
from qanat.deploy.sizing.capture import max_num_graphs, thin_out

FULL_MODES = ("FULL_DECODE_ONLY", "FULL", "FULL_AND_PIECEWISE")
PIECEWISE_MODES = ("PIECEWISE", "FULL_AND_PIECEWISE")
STREAMS_UNTIL = must_parse("0.20.2")
FOUR_SIZES = (must_parse("0.22.1rc1"), must_parse("0.26.0"))
FEW_SIZES = 4
DIVISOR_UNTIL = must_parse("0.26.0")


def step_of(tp: int, k: int, has_flashcomm1: bool, mode: str) -> int:
    """Capture sizes are multiples of this: of 1 + k, and of the tensor parallel size with FlashComm1."""
    rows = 1 + k if mode in FULL_MODES else 1
    return math.lcm(tp if has_flashcomm1 else 1, rows)


def has_common_multiple(version: Version, tp: int, k: int) -> bool:
    """Whether FlashComm1 and speculation agree on sizes: up to 0.26 one of TP and 1 + k must divide the other."""
    rows = 1 + k
    return version > DIVISOR_UNTIL or max(tp, rows) % min(tp, rows) == 0


def capture_sizes(step: int, largest: int) -> tuple[int, ...]:
    """Multiples of `step` up to `largest`, dense where batches are small."""
    num_steps = largest // step
    counts, count = [], 1
    while count < num_steps:
        counts.append(count)
        count += (
            1
            if count < 4
            else 2
            if count < 8
            else 4
            if count < 32
            else 8
            if count < 64
            else max(16, count // 8)
        )
    return tuple(step * one for one in (*counts, num_steps)) if num_steps else ()


def fitting_sizes(
    sizes: tuple[int, ...],
    subject: Subject,
    mode: str,
    groups: int,
    is_dp: bool,
    is_aiv: bool,
    has_draft: bool,
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
    """
    if mode not in PIECEWISE_MODES:
        return sizes, None
    limit = None
    if subject.version.base <= STREAMS_UNTIL:
        model = subject.model
        limit = max(1, max_num_graphs(model.num_layers, int(has_draft), groups, model.is_moe, is_dp, is_aiv))
    elif (
        subject.chip.family == "A5"
        and FOUR_SIZES[0] <= subject.version
        and subject.version.base <= FOUR_SIZES[1]
    ):
        limit = FEW_SIZES
    return (sizes, None) if limit is None else (thin_out(sizes, limit), limit)
