"""Whether an engine fits, with smaller limits where nobody asked for these; or why it does not."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.engines import Engine, Misfit, Switches, Task
from qanat.deploy.plan.limits import limits_of, unit_of, wished_context, wished_sequences
from qanat.deploy.plan.measure import measure
from qanat.deploy.plan.shape import Shape
from qanat.deploy.plan.switches import choose_switches
from qanat.deploy.sizing.memory import gib

ROUND_TOKENS = 1024
LEAST_CONTEXT = 2048
"""Where nobody asked for a context, no shorter one is chosen to make a model fit."""


@dataclass(frozen=True)
class Trial:
    """Measures one shape with different limits.

    Attributes:
        task: what the engine is for.
        shape: its parallel sizes.
        switches: its options.
        advice: notes for this shape.
    """

    task: Task
    shape: Shape
    switches: Switches
    advice: Advice

    def measure(self, context: int, num_seqs: int) -> Engine:
        """The engine with these limits, whether it fits or not."""
        limits = limits_of(self.task, self.shape, self.switches, self.advice, context, num_seqs)
        return measure(self.task, self.shape, limits, self.switches, self.advice)

    def fewest(self) -> int:
        """The smallest number of sequences whose batch has a graph."""
        return unit_of(self.task, self.shape, self.switches)

    def most_sequences(self, context: int, num_seqs: int) -> int:
        """The largest number of sequences up to `num_seqs` that fits; 0 if not even the smallest does."""
        unit = self.fewest()
        low, high = 0, num_seqs // unit
        while low < high:
            middle = (low + high + 1) // 2
            if holds(self.measure(context, middle * unit)):
                low = middle
            else:
                high = middle - 1
        return low * unit


def holds(engine: Engine) -> bool:
    """Whether the engine starts, holds one request of the longest kind beside the others, and keeps head-room."""
    memory = engine.memory
    is_long_enough = memory.longest_context >= engine.limits.max_model_len
    return is_long_enough and memory.needed_pool_bytes <= memory.pool_bytes and memory.head_room_bytes >= 0


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
    trial = Trial(task, shape, switches, advice)
    num_seqs = wished_sequences(task, shape, switches, advice)
    short = _short_step(task, shape, num_seqs)
    if short is not None:
        return short
    engine = trial.measure(wished_context(task, advice), num_seqs)
    if holds(engine):
        _note_limits(task, engine)
        return engine
    for context in _contexts(trial, engine):
        engine = trial.measure(context, num_seqs)
        if holds(engine):
            return _lowered(task, engine)
        fewer = trial.most_sequences(context, num_seqs)
        if fewer and not _may_shrink(task):
            return _too_many(engine, fewer)
        if fewer:
            return _lowered(task, trial.measure(context, fewer), fewer)
    return _misfit(trial.measure(wished_context(task, advice), min(num_seqs, trial.fewest())))


def _short_step(task: Task, shape: Shape, num_seqs: int) -> Misfit | None:
    """What is wrong with steps that do not hold every sequence; prefill engines read prompts in pieces."""
    tokens, rows = task.wish.max_num_batched_tokens, 1 + task.speculation.num_tokens
    if tokens is None or task.role == "prefill" or num_seqs * rows <= tokens:
        return None
    why = (
        f"steps of {tokens} tokens do not hold {num_seqs} sequences of 1 + {rows - 1} tokens; --max-num-batched-tokens "
        f"{num_seqs * rows} does ({_place(shape)})"
    )
    return Misfit(shape, why, 0, tokens // rows, num_seqs * rows - tokens)


def _contexts(trial: Trial, engine: Engine) -> list[int]:
    """Contexts to try where the wished ones do not fit: that one with fewer sequences, then shorter ones."""
    wished = engine.limits.max_model_len
    if trial.task.wish.max_model_len is not None:
        return [wished]
    longest = trial.measure(wished, trial.fewest()).memory.longest_context
    shorter = [longest * quarters // 4 // ROUND_TOKENS * ROUND_TOKENS for quarters in (3, 2, 1)]
    return [wished, *(one for one in shorter if LEAST_CONTEXT <= one < wished)]


def _may_shrink(task: Task) -> bool:
    is_stated = task.wish.concurrency is not None and task.role != "prefill"
    return not is_stated and task.max_num_seqs is None


def _lowered(task: Task, engine: Engine, num_seqs: int | None = None) -> Engine:
    """The engine with a warning for every limit that is below the usual one."""
    warnings = []
    if engine.limits.max_model_len < wished_context(task, engine.advice):
        warnings.append(
            f"The cache is too small for the usual context, so --max-model-len is {engine.limits.max_model_len}."
        )
    if num_seqs is not None:
        warnings.append(
            f"The cache has room for the states of {num_seqs} sequences, so --max-num-seqs is {num_seqs}."
        )
    _note_limits(task, engine)
    return Engine(**{**vars(engine), "warnings": (*engine.warnings, *warnings)})


def _too_many(engine: Engine, fitting: int) -> Misfit:
    """What is wrong with a number of requests that was asked for."""
    memory, limits = engine.memory, engine.limits
    why = (
        f"{limits.max_num_seqs} sequences per rank, one of them {limits.max_model_len} tokens long, need "
        f"{gib(memory.needed_pool_bytes)} of cache, and {gib(max(0, memory.pool_bytes))} are left; {fitting} fit "
        f"({_place(engine.shape)})"
    )
    missing = memory.needed_pool_bytes - memory.pool_bytes
    return Misfit(engine.shape, why, memory.longest_context, fitting, max(1, missing))


def _misfit(engine: Engine) -> Misfit:
    """What is wrong with an engine that holds not even the fewest sequences."""
    memory, limits = engine.memory, engine.limits
    inside = sum(item.size_bytes for item in memory.items if item.is_in_budget)
    missing = memory.needed_pool_bytes - memory.pool_bytes
    longest = 0
    if memory.head_room_bytes < 0:
        outside = memory.total_bytes - memory.budget_bytes - memory.head_room_bytes
        why = (
            f"with --gpu-memory-utilization {engine.share:g} only {gib(memory.total_bytes - memory.budget_bytes)} "
            f"are left for graphs, fragments and uneven experts, which take {gib(outside)}"
        )
        missing = -memory.head_room_bytes
    elif memory.pool_bytes <= 0:
        weights = next(item for item in memory.items if item.name == "weights")
        why = (
            f"{gib(inside)} of an NPU are taken, {gib(weights.size_bytes)} of them by weights, and "
            f"{gib(memory.budget_bytes)} may be"
        )
    else:
        longest = memory.longest_context
        why = (
            f"{gib(memory.pool_bytes)} are left for the cache, enough for {longest} tokens of one sequence, and "
            f"--max-model-len is {limits.max_model_len}"
        )
    return Misfit(engine.shape, f"{why} ({_place(engine.shape)})", longest, 0, max(1, missing))


def too_few_nodes(task: Task, engine: Engine) -> Misfit | None:
    """What is wrong with fewer NPUs than documents ask for, whatever the sizes come to; None if there are enough."""
    subject, shape = task.subject, engine.shape
    documented = subject.weights.nodes.get(subject.chip.name, 0)
    if shape.num_nodes * subject.npus_per_node >= documented * subject.chip.num_npus_per_node:
        return None
    weights = next(item for item in engine.memory.items if item.name == "weights")
    why = (
        f"weights take {gib(weights.size_bytes)} of {gib(engine.memory.budget_bytes)} of each NPU ({_place(shape)}), "
        f"and {subject.weights.source} ask for {documented} nodes of {subject.chip.num_npus_per_node} NPUs"
    )
    return Misfit(shape, why, 0, 0, weights.size_bytes)


def _place(shape: Shape) -> str:
    nodes = "1 node" if shape.num_nodes == 1 else f"{shape.num_nodes} nodes"
    return f"TP {shape.tp}, DP {shape.dp} on {nodes}"


def _note_limits(task: Task, engine: Engine) -> None:
    """Notes of what the numbers came to."""
    advice, limits, wish = engine.advice, engine.limits, task.wish
    advice.numbers |= {
        "seqs": limits.max_num_seqs,
        "block": engine.memory.block_tokens,
        "room": gib(engine.memory.head_room_bytes),
    }
    _note(advice, "--max-model-len", wish.max_model_len, limits.max_model_len)
    _note(advice, "--max-num-seqs", task.max_num_seqs, limits.max_num_seqs)
    if wish.concurrency is not None:
        advice.state("concurrency", wish.concurrency)
    _note(advice, "--max-num-batched-tokens", wish.max_num_batched_tokens, limits.max_num_batched_tokens)
    _note(advice, "--gpu-memory-utilization", wish.gpu_memory_utilization, engine.share)
    if engine.sizes:
        advice.compute("cudagraph_capture_sizes", list(engine.sizes))
    advice.compute("HCCL_BUFFSIZE", engine.buffer_mib, by=str(advice.numbers["buffer"]))


def _note(advice: Advice, what: str, stated: int | float | None, value: int | float) -> None:
    """Notes a value as what the user stated, or as computed where nothing was."""
    if stated is not None:
        advice.state(what, value)
    else:
        advice.compute(what, value)
