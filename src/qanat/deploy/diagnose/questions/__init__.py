"""Questions that guides leave to the reader; each is a function from evidence to a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qanat.deploy.diagnose.evidence import Evidence
from qanat.deploy.diagnose.questions.benchmark import bench_ends, bench_load, published
from qanat.deploy.diagnose.questions.caching import cache_size, preemptions, prefix_caching
from qanat.deploy.diagnose.questions.experts import flashcomm1, fused_mc2
from qanat.deploy.diagnose.questions.graphs import graph_misses
from qanat.deploy.diagnose.questions.scheduling import asynchronous, first_token, queueing
from qanat.deploy.diagnose.questions.speculation import speculation
from qanat.deploy.diagnose.verdict import Verdict

OF_SERVERS: tuple[Callable[[Evidence], Verdict], ...] = (
    queueing,
    preemptions,
    cache_size,
    first_token,
    prefix_caching,
    speculation,
    graph_misses,
    flashcomm1,
    fused_mc2,
    asynchronous,
)
"""Answered from metrics and settings, what costs most first."""

OF_BENCHMARKS: tuple[Callable[[Evidence], Verdict], ...] = (bench_load, bench_ends, published)
"""Answered from a benchmark's result."""


def answers(evidence: Evidence) -> Iterator[Verdict]:
    """All questions that the evidence is meant for."""
    if evidence.metrics is not None:
        for ask in OF_SERVERS:
            yield ask(evidence)
    elif evidence.bench is not None and (evidence.bench.positions or evidence.num_draft_tokens):
        yield speculation(evidence)
    if evidence.bench is not None:
        for ask in OF_BENCHMARKS:
            yield ask(evidence)
