"""Refusals where the memory or the sizes of two sides do not go together."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

import msgspec

from qanat.deploy.plan.arrangement import Group
from qanat.deploy.plan.engines import Misfit, Task
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.fitting import ROUND_TOKENS
from qanat.deploy.plan.shape import Shape
from qanat.deploy.plan.subject import Subject
from qanat.deploy.plan.wish import Wish
from qanat.deploy.sizing.budget import visible_bytes


def does_not_fit(wish: Wish, subject: Subject, misfits: Sequence[Misfit]) -> ImpossibleWish:
    """The refusal for a model that fits nowhere; the attempt that comes nearest speaks for all.

    Where a stated limit is in the way, that is the one with the fewest nodes: more of them are no remedy.
    """
    limits = (wish.gpu_memory_utilization, wish.max_num_batched_tokens, wish.overrides.get("max-num-seqs"))
    is_limited = any(limit is not None for limit in limits)
    best = misfits[0] if is_limited else min(misfits, key=lambda misfit: misfit.missing_bytes)
    why = (
        f"{subject.model.name} in {subject.weights.variant} does not fit on {subject.chip.name}: {best.why}."
    )
    return ImpossibleWish(why, candidates=_smaller(wish, subject, best))


def _smaller(wish: Wish, subject: Subject, misfit: Misfit) -> Iterator[Wish]:
    """Wishes that need less of the cache, or get more of it."""
    replace = msgspec.structs.replace
    tokens = misfit.longest_context // ROUND_TOKENS * ROUND_TOKENS
    if wish.max_model_len is not None and 0 < tokens < wish.max_model_len:
        yield replace(wish, max_model_len=tokens)
        yield replace(wish, max_model_len=max(ROUND_TOKENS, tokens * 3 // 4))
    if wish.concurrency is not None and 0 < misfit.most_sequences:
        fitting = misfit.most_sequences * misfit.shape.dp
        if fitting < wish.concurrency:
            yield replace(wish, concurrency=fitting)
            yield replace(wish, concurrency=max(1, fitting * 3 // 4))
    if 0 < misfit.most_sequences and "max-num-seqs" in wish.overrides:
        yield replace(wish, overrides={**wish.overrides, "max-num-seqs": misfit.most_sequences})
    if wish.gpu_memory_utilization is not None:
        missing = misfit.missing_bytes / visible_bytes(subject.chip, subject.memory_gib)
        share = math.ceil((wish.gpu_memory_utilization + missing) * 100 + 1) / 100
        if share < 1:
            yield replace(wish, gpu_memory_utilization=share)
        yield replace(wish, gpu_memory_utilization=None)
    if wish.max_num_batched_tokens is not None:
        yield replace(wish, max_num_batched_tokens=None)


def uneven(subject: Subject, group: Group) -> Misfit:
    """What is wrong with nodes over which no sizes spread the experts evenly."""
    why = f"{subject.model.num_experts} experts cannot be spread evenly over {group.num_nodes} nodes"
    return Misfit(Shape(1, group.num_nodes, group.num_nodes), why, 0, 0, sys.maxsize)


def unequal(task: Task, prefill: int, decode: int) -> ImpossibleWish:
    """The refusal of a prefill size that is no multiple of the decode size."""
    why = (
        f"prefill has a tensor parallel size of {prefill}, which is no multiple of decode's {decode}; each decode rank "
        "fetches from whole prefill ranks."
    )
    replace = msgspec.structs.replace
    candidates = [
        replace(task.wish, decode_tensor_parallel_size=None, decode_data_parallel_size=None),
        replace(task.wish, tensor_parallel_size=decode, decode_tensor_parallel_size=None),
        replace(task.wish, tensor_parallel_size=None, decode_tensor_parallel_size=None),
    ]
    return ImpossibleWish(why, param="--tensor-parallel-size", candidates=candidates)
