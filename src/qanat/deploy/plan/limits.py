"""What an engine takes at once: context, sequences, tokens of a step."""

from __future__ import annotations

import math

from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.engines import Limits, Switches, Task
from qanat.deploy.plan.graphs import step_of
from qanat.deploy.plan.measure import layout_of
from qanat.deploy.plan.shape import Shape
from qanat.deploy.sizing.cache_layout import cache_of


def wished_context(task: Task, advice: Advice) -> int:
    """Tokens of the longest request: as stated, else by practice within the window."""
    if task.wish.max_model_len is not None:
        return task.wish.max_model_len
    practice = advice.find("--max-model-len")
    return min(task.window, int(str(practice.value)) if practice else task.window)


def wished_sequences(task: Task, shape: Shape, switches: Switches, advice: Advice) -> int:
    """Sequences of a data parallel rank: its share of the requests, in multiples that have a graph of their own."""
    concurrency = task.wish.concurrency or int(advice.take("concurrency"))
    advice.numbers |= {"concurrency": concurrency}
    if task.max_num_seqs is not None:
        return task.max_num_seqs
    practice = advice.find("--max-num-seqs")
    if practice is not None and practice.value is not None:
        return int(str(practice.value))
    share = math.ceil(concurrency / (shape.dp * task.num_instances))
    unit = unit_of(task, shape, switches)
    tokens = task.wish.max_num_batched_tokens
    if tokens is not None and task.wish.concurrency is None:
        share = max(1, min(share, tokens // (1 + task.speculation.num_tokens) // unit * unit))
    return math.ceil(share / unit) * unit


def limits_of(
    task: Task, shape: Shape, switches: Switches, advice: Advice, context: int, num_seqs: int
) -> Limits:
    """Limits for a context and a number of sequences: tokens of a step follow from them.

    A step holds every sequence with its drafts, and a whole block where hybrid models cache prefixes.
    """
    stated = task.wish.max_num_batched_tokens
    if stated is not None:
        return Limits(context, num_seqs, stated)
    least = num_seqs * (1 + task.speculation.num_tokens)
    if task.role == "decode":
        return Limits(context, num_seqs, least)
    if switches.prefix_caching and task.subject.model.is_hybrid:
        least = max(least, cache_of(layout_of(task, shape, Limits(1, 1, 1), switches)).block_tokens)
    practice = advice.find("--max-num-batched-tokens")
    wanted = int(str(practice.value)) if practice is not None and practice.value else 0
    return Limits(context, num_seqs, min(max(wanted, least), max(least, num_seqs * context)))


def unit_of(task: Task, shape: Shape, switches: Switches) -> int:
    """Sequences come in multiples of this, so that the full batch has a graph of its own."""
    k = task.speculation.num_tokens
    step = step_of(shape.tp, k, switches.flashcomm1, switches.mode)
    return max(1, step // math.gcd(step, 1 + k))
