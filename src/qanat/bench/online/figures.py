"""The result of a run: the keys of `vllm bench serve`, and ours beside them under `qanat`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qanat.bench.client.load import LoadRecord
from qanat.bench.online.answer import Answer
from qanat.bench.online.measures import (
    INTENDED,
    SENT,
    Measured,
    Slos,
    chunk_gaps_s,
    e2el_s,
    measure,
    most_at_once,
    most_tokens_in_a_second,
    token_gaps_s,
    ttft_s,
    values_of,
)
from qanat.bench.online.server_metrics import ServerMetrics
from qanat.bench.online.statistics import Distribution, clustered_percentile_interval, mean_interval
from qanat.bench.online.verdict import client_delays_s, distinct_pairs


@dataclass(frozen=True)
class Wanted:
    """What the result shows.

    Attributes:
        metrics: keys of `METRICS`.
        percentiles: in [0, 100].
        slos: bounds of good requests; None without.
        latency_from: where latency counts from, `INTENDED` or `SENT`.
        seed: of the resampling.
    """

    metrics: Sequence[str]
    percentiles: Sequence[float]
    slos: Slos | None = None
    latency_from: str = INTENDED
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a run left, understood.

    Attributes:
        load: how the client did.
        answers: in the order of the plan.
        wanted_input_lens: tokens that each prompt was meant to have, by index.
        server: its own figures; None without.
        timeline: what its metrics said during the run; None without.
        facts: of the setting, for the result's beginning.
        notes: sentences that belong to the result.
        num_file_bytes: that did not fit in the memory allowed.
    """

    load: LoadRecord
    answers: Sequence[Answer]
    wanted_input_lens: Mapping[int, int | None]
    server: ServerMetrics | None = None
    timeline: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    num_file_bytes: int = 0

    @property
    def good(self) -> list[Answer]:
        """Complete answers."""
        return [answer for answer in self.answers if answer.is_ok]

    def input_len(self, answer: Answer) -> int:
        """Tokens of an answer's prompt: as the server counts, else as was meant."""
        if answer.num_prompt_tokens is not None:
            return answer.num_prompt_tokens
        return self.wanted_input_lens.get(answer.index) or 0

    @property
    def cached_share(self) -> float | None:
        """Share of the prompts' tokens out of the prefix cache: by the answers, else by the server's counters."""
        told = [answer for answer in self.good if answer.num_cached_tokens is not None]
        total = sum(self.input_len(answer) for answer in told)
        if told and total:
            return sum(answer.num_cached_tokens or 0 for answer in told) / total
        if self.server is not None:
            queries, hits = (self.server.total(f"prefix_cache_{name}") for name in ("queries", "hits"))
            if queries and hits is not None:
                return hits / queries
        return None


def totals(outcome: Outcome, wanted: Wanted) -> dict[str, Any]:
    """Totals and rates, with vLLM's keys."""
    good, wall_s = outcome.good, outcome.load.wall_s
    num_input = sum(outcome.input_len(answer) for answer in good)
    num_output = sum(answer.num_output_tokens for answer in good)

    def rate(count: float) -> float:
        return count / wall_s if wall_s > 0 else 0.0

    slos = wanted.slos
    return {
        "duration": wall_s,
        "completed": len(good),
        "failed": len(outcome.answers) - len(good),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": rate(len(good)),
        "request_goodput": rate(sum(map(slos.holds, good))) if slos is not None else None,
        "output_throughput": rate(num_output),
        "total_token_throughput": rate(num_input + num_output),
        "max_output_tokens_per_s": float(most_tokens_in_a_second(good)),
        "max_concurrent_requests": most_at_once(good),
        "rtfx": 0.0,
    }


def described(name: str, measured: Measured | None, percentiles: Sequence[float]) -> dict[str, float | None]:
    """Mean, median, deviation and percentiles in milliseconds; all None where nothing was measured."""
    values = measured.values if measured is not None else None
    found: dict[str, float | None] = {
        f"mean_{name}_ms": 1e3 * values.mean if values else None,
        f"median_{name}_ms": 1e3 * values.percentile(50) if values else None,
        f"std_{name}_ms": 1e3 * values.deviation if values else None,
    }
    for percent in percentiles:
        found[f"p{percent:g}_{name}_ms"] = 1e3 * values.percentile(percent) if values else None
    return found


def latencies(outcome: Outcome, wanted: Wanted, latency_from: str) -> dict[str, float | None]:
    """The wanted metrics."""
    found: dict[str, float | None] = {}
    for name in wanted.metrics:
        measured = measure(outcome.good, values_of(name, latency_from))
        found |= described(name, measured, wanted.percentiles)
    return found


def own_figures(outcome: Outcome, wanted: Wanted) -> dict[str, Any]:
    """What vLLM's command does not have."""
    good = outcome.good
    waits = sorted(max(0.0, answer.ready_s - answer.intended_s) for answer in outcome.answers)
    gaps = measure(good, chunk_gaps_s)
    other = SENT if wanted.latency_from == INTENDED else INTENDED
    several = sum(count > 1 for answer in good for count in answer.chunk_tokens)
    lens = [(outcome.wanted_input_lens.get(answer.index), answer.num_prompt_tokens) for answer in good]
    told = [(meant, got) for meant, got in lens if meant is not None and got is not None]
    return {
        "latency_from": wanted.latency_from,
        f"from_{other}": latencies(outcome, wanted, other),
        "chunk_gaps": {**described("chunk_gap", gaps, wanted.percentiles), "num_chunks_of_several": several},
        "confidence_95": _intervals(outcome, wanted),
        "client": {**_client_figures(outcome), "wait_for_place_ms": _spread(waits)},
        "server": outcome.server.figures() if outcome.server is not None else None,
        "timeline": outcome.timeline,
        "prompts": {
            "num_of_meant_length": sum(meant == got for meant, got in told),
            "num_compared": len(told),
            "num_added_to_each": _same([got - meant for meant, got in told]),
            "mean_meant": _mean([meant for meant, _ in told]),
            "mean_counted_by_server": _mean([got for _, got in told]),
            "cached_share": outcome.cached_share,
        },
        "outputs": {
            "counted_by": dict(Counter(answer.counter for answer in good)),
            "distinct_pairs_per_token": distinct_pairs(good),
            "finish_reasons": dict(Counter(answer.finish_reason for answer in good)),
            "num_single_chunk": sum(answer.is_single_chunk for answer in good),
        },
        "failures": dict(Counter(answer.failure for answer in outcome.answers if not answer.is_ok)),
        "notes": list(outcome.notes),
    }


def _client_figures(outcome: Outcome) -> dict[str, Any]:
    load = outcome.load
    return {
        "send_delay_ms": _spread(client_delays_s(outcome.answers)),
        "loop_delay_ms": _spread(sorted(load.beat_delays_s)),
        "cpu_share": load.cpu_s / load.wall_s if load.wall_s > 0 else 0.0,
        "num_connections": load.num_opened,
        "num_pieces": load.num_pieces,
        "reading_cpu_s": load.reading_cpu_s,
        "num_file_bytes": outcome.num_file_bytes,
    }


def _intervals(outcome: Outcome, wanted: Wanted) -> dict[str, tuple[float, float] | None]:
    """Where the figures lie with 95 % confidence, in milliseconds.

    Means, and percentiles of times between tokens: resampled over requests, as tokens of one answer are alike.
    Percentiles of figures that a request has one of: exact, by their ranks.
    """
    found: dict[str, tuple[float, float] | None] = {}
    for name in wanted.metrics:
        measured = measure(outcome.good, values_of(name, wanted.latency_from))
        if measured is None:
            continue
        sums, counts = (
            [math.fsum(values) for values in measured.by_answer],
            list(map(len, measured.by_answer)),
        )
        found[f"mean_{name}_ms"] = _in_ms(mean_interval(sums, counts, wanted.seed))
        keys = {f"p{percent:g}_{name}_ms": percent for percent in wanted.percentiles}
        for key, percent in {f"median_{name}_ms": 50.0, **keys}.items():
            found[key] = _in_ms(
                clustered_percentile_interval(measured.by_answer, measured.values, percent, wanted.seed)
                if name == "itl"
                else measured.values.percentile_interval(percent)
            )
    return found


def _in_ms(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return (1e3 * interval[0], 1e3 * interval[1]) if interval is not None else None


def _spread(ordered: Sequence[float]) -> dict[str, float] | None:
    """Median, 99th percentile and maximum in milliseconds."""
    if not ordered:
        return None
    values = Distribution(ordered)
    return {"p50": 1e3 * values.percentile(50), "p99": 1e3 * values.percentile(99), "max": 1e3 * ordered[-1]}


def _same(values: Sequence[int]) -> int | None:
    """The value that all of them have; None if they differ, or there is none."""
    return values[0] if values and min(values) == max(values) else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def details(outcome: Outcome, latency_from: str) -> dict[str, Any]:
    """Figures of each request, in the order of the plan; seconds, failed ones with zeros as vLLM's command has them."""
    answers = sorted(outcome.answers, key=lambda answer: answer.index)
    return {
        "input_lens": [outcome.input_len(answer) for answer in answers],
        "output_lens": [answer.num_output_tokens if answer.is_ok else 0 for answer in answers],
        "ttfts": [(ttft_s(answer, latency_from) or 0.0) if answer.is_ok else 0.0 for answer in answers],
        "itls": [token_gaps_s(answer) if answer.is_ok else [] for answer in answers],
        "start_times": [answer.sent_s for answer in answers],
        "generated_texts": [answer.text for answer in answers],
        "errors": [f"{answer.failure}: {answer.message}" if answer.failure else "" for answer in answers],
        "intended_times": [answer.intended_s for answer in answers],
        "e2els": [e2el_s(answer, latency_from) if answer.is_ok else 0.0 for answer in answers],
        "end_times": [answer.end_s for answer in answers],
        "chunk_gaps": [chunk_gaps_s(answer) if answer.is_ok else [] for answer in answers],
    }
