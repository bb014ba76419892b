"""The loads that a deployment is benchmarked with, and the published figures beside each."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.deploy.baselines import Load, Setup, is_comparable, nearest_throughput, throughputs
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.numbers import Baseline
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import decoding_role
from qanat.deploy.plan.wish import Scenario

LENGTHS = ((131072, 1024), (65536, 1024), (32768, 512), (16384, 1024), (3500, 1500))
"""Input and output lengths that figures are published for, longest first."""
DEFAULT_MAX_NUM_SEQS = 256
"""Of vLLM on Ascend where --max-num-seqs is not given."""
MAX_STEPS = 6


@dataclass(frozen=True)
class Step:
    """One run of the benchmark: requests at once, and the published figures nearest to it.

    `comparable` are those of the same layout and nearly the same load: a share of them means something.
    """

    concurrency: int
    nearest: tuple[Baseline, ...]
    comparable: tuple[Baseline, ...]


@dataclass(frozen=True)
class Benchmark:
    """Tokens of one request in and out, and the steps."""

    input_tokens: int
    output_tokens: int
    steps: tuple[Step, ...]


def capacity(plan: Plan) -> int:
    """Requests that the service is meant to run at once."""
    if plan.wish.concurrency:
        return max(1, plan.wish.concurrency)
    role = decoding_role(plan)
    per_rank = role.flags.get("max-num-seqs")
    size = per_rank if isinstance(per_rank, int) else DEFAULT_MAX_NUM_SEQS
    return max(1, size * role.data_parallel_size * role.num_instances)


def benchmark_of(plan: Plan, knowledge: Knowledge) -> Benchmark:
    """The benchmark of a plan: lengths by its scenario, steps from one request up to what it is meant for."""
    input_tokens, output_tokens = _lengths(plan)
    setup, most = Setup.of(plan), capacity(plan)
    wanted = {1, most, *(max(1, most // share) for share in (2, 4, 8))}
    for figure in throughputs(setup, knowledge):
        load = Load(input_tokens, output_tokens, figure.concurrency or 0)
        if load.concurrency and load.concurrency <= most and is_comparable(figure, setup, load):
            wanted.add(load.concurrency)
    steps = []
    ordered = sorted(wanted)
    for concurrency in [*ordered[:1], *ordered[1:][1 - MAX_STEPS :]]:
        load = Load(input_tokens, output_tokens, concurrency)
        nearest = nearest_throughput(setup, load, knowledge)
        comparable = tuple(one for one in nearest if is_comparable(one, setup, load))
        steps.append(Step(concurrency, tuple(nearest), comparable))
    return Benchmark(input_tokens, output_tokens, tuple(steps))


def _lengths(plan: Plan) -> tuple[int, int]:
    window = decoding_role(plan).flags.get("max-model-len")
    if not isinstance(window, int):
        return LENGTHS[-1]
    fitting = [pair for pair in LENGTHS if sum(pair) <= window]
    if not fitting:
        return max(1, window // 2), max(1, window // 4)
    return fitting[0] if plan.wish.scenario is Scenario.LONG_CONTEXT else fitting[-1]
