"""What an engine takes at once: context, sequences, tokens of a step."""

from __future__ import annotations

import math

from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.engines import Limits, Switches, Task
from qanat.deploy.plan.graphs import (
    step_of,
)
from qanat.deploy.plan.measure import layout_of
from qanat.deploy.plan.shape import Shape
from qanat.deploy.sizing.cache_layout import cache_of


def choose_limits(task: Task, shape: Shape, switches: Switches, advice: Advice) -> Limits:
    """Context, sequences and tokens of a step."""
    wish, k = task.wish, task.speculation.num_tokens
    practice = advice.find("--max-model-len")
    default = min(task.window, int(str(practice.value)) if practice else task.window)
    max_model_len = wish.max_model_len or default
    max_num_seqs = _sequences(task, shape, switches, advice)
    advice.numbers["seqs"] = max_num_seqs
    if task.role == "decode" and wish.max_num_batched_tokens is None:
        return Limits(max_model_len, max_num_seqs, max_num_seqs * (1 + k))
    tokens = advice.find("--max-num-batched-tokens")
    wanted = int(str(tokens.value)) if tokens is not None and tokens.value else 0
    least = max_num_seqs * (1 + k)
    if wish.max_num_batched_tokens is not None:
        return Limits(max_model_len, max_num_seqs, wish.max_num_batched_tokens)
    if switches.prefix_caching and task.subject.model.is_hybrid:
        least = max(least, cache_of(layout_of(task, shape, Limits(1, 1, 1), switches)).block_tokens)
    most = max(least, max_num_seqs * max_model_len)
    return Limits(max_model_len, max_num_seqs, min(max(wanted, least), most))


def _sequences(task: Task, shape: Shape, switches: Switches, advice: Advice) -> int:
    concurrency = task.wish.concurrency or int(advice.take("concurrency"))
    advice.numbers |= {"concurrency": concurrency}
    if task.max_num_seqs is not None:
        return task.max_num_seqs
    share = math.ceil(concurrency / (shape.dp * task.num_instances))
    practice = advice.find("--max-num-seqs")
    if task.role == "prefill" and practice is not None and practice.value is not None:
        return int(str(practice.value))
    unit = unit_of(task, shape, switches)
    return math.ceil(share / unit) * unit


def unit_of(task: Task, shape: Shape, switches: Switches) -> int:
    """Sequences come in multiples of this, so that the full batch has a graph of its own."""
    k = task.speculation.num_tokens
    step = step_of(shape.tp, k, switches.flashcomm1, switches.mode)
    return max(1, step // math.gcd(step, 1 + k))
