"""What two readings of a server say of the time between them. Names that vLLM had in the past are understood too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.bench.live.reading import Reading
from qanat.bench.online.server_metrics import ACCEPTED, DRAFTED, DRAFTS, PREFIX, ServerMetrics
from qanat.deploy.prometheus import Exposition, Sample, bounds_of, quantile

LATENCIES = {
    "ttft": ("time_to_first_token_seconds",),
    "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "e2e": ("e2e_request_latency_seconds",),
    "queue": ("request_queue_time_seconds",),
}
"""Histograms of seconds by the name that we give them; of several names the first that a server has."""
STEP_TOKENS = "iteration_tokens_total"
USAGE = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
QUERIES = ("prefix_cache_queries", "gpu_prefix_cache_queries")
HITS = ("prefix_cache_hits", "gpu_prefix_cache_hits")
CHOSEN_ROWS = "qanat:spec_decode_rows_total"
GROWING = ("generation_tokens", "prompt_tokens", "request_success")
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Span:
    """The time between two readings, the later of which is good.

    Args:
        before: None if there is only one reading: then nothing has a rate.
        after: the later one.
    """

    before: Reading | None
    after: Reading

    @property
    def duration_s(self) -> float:
        """Between them; 0 without an earlier one."""
        return self.after.moment_s - self.before.moment_s if self.before else 0.0

    @property
    def is_restarted(self) -> bool:
        """True if a counter has become smaller: the server, or one of its processes, began anew."""
        return self.before is not None and any(
            total(self.after.metrics, name) < total(self.before.metrics, name) for name in GROWING
        )

    def figures(self) -> dict[str, Any]:
        """Everything, as `qanat top --json` shows it; None for what the server does not have.

        Latencies are in ms, shares from 0 to 1. Where nothing was observed between the readings, percentiles, hits
        and acceptance are those since the server's start, marked `is_since_start`.
        """
        since_start = ServerMetrics(Exposition(), self.after.metrics)
        between = ServerMetrics(self.before.metrics, self.after.metrics) if self.before else None
        samples = self.after.metrics
        return {
            "models": sorted(
                {
                    name
                    for one in samples.all(f"{PREFIX}num_requests_running")
                    if (name := one.labels.get("model_name"))
                }
            ),
            "duration_s": self.duration_s,
            "running": _gauge(samples, "num_requests_running"),
            "waiting": _gauge(samples, "num_requests_waiting"),
            "replicas": _replicas(samples),
            "prompt_tokens_per_s": self._rate(between, "prompt_tokens"),
            "generation_tokens_per_s": self._rate(between, "generation_tokens"),
            "requests_per_s": self._rate(between, "request_success"),
            "preemptions": since_start.total("num_preemptions"),
            "latency_ms": {
                key: _distribution(between, since_start, names, 1e3) for key, names in LATENCIES.items()
            },
            "step_tokens": _distribution(between, since_start, (STEP_TOKENS,), 1.0),
            "steps_per_s": self._rate(between, f"{STEP_TOKENS}_count"),
            "kv_cache_usage": _usage(samples),
            "prefix_cache": _prefix_cache(between, since_start),
            "speculation": _speculation(between, since_start),
        }

    def _rate(self, between: ServerMetrics | None, name: str) -> float | None:
        grown = between.total(name) if between is not None else None
        return None if grown is None or self.duration_s <= 0 else grown / self.duration_s


def total(metrics: Exposition, name: str) -> float:
    """Sum of a counter whose name may end with _total; 0 if it is not there."""
    samples = metrics.all(f"{PREFIX}{name}_total") or metrics.all(PREFIX + name)
    return sum(one.value for one in samples)


def _gauge(metrics: Exposition, name: str) -> float | None:
    samples = metrics.all(PREFIX + name)
    return sum(one.value for one in samples) if samples else None


def _usage_samples(metrics: Exposition) -> list[Sample]:
    return next((found for name in USAGE if (found := metrics.all(PREFIX + name))), [])


def _usage(metrics: Exposition) -> float | None:
    """Mean of the replicas."""
    samples = _usage_samples(metrics)
    return sum(one.value for one in samples) / len(samples) if samples else None


def _replicas(metrics: Exposition) -> list[dict[str, Any]]:
    """Gauges of each replica, by the label `engine`."""
    found: dict[str, dict[str, Any]] = {}
    columns = {
        "running": metrics.all(f"{PREFIX}num_requests_running"),
        "waiting": metrics.all(f"{PREFIX}num_requests_waiting"),
        "kv_cache_usage": _usage_samples(metrics),
    }
    for key, samples in columns.items():
        for one in samples:
            engine = one.labels.get("engine", "0")
            found.setdefault(engine, {"engine": engine})[key] = one.value
    return list(found.values())


def _distribution(
    between: ServerMetrics | None, since_start: ServerMetrics, names: Sequence[str], unit: float
) -> dict[str, Any] | None:
    """Mean and percentiles, as Prometheus estimates them from the buckets; None without observations.

    Of a percentile up to `lowest_bound`, that of the first bucket, nothing more than that is known.
    """
    for name in names:
        for metrics in (between, since_start):
            count, whole = (
                (metrics.counter(f"{name}_count"), metrics.counter(f"{name}_sum"))
                if metrics
                else (None, None)
            )
            if metrics is None or not count or whole is None:
                continue
            grown = _grown_buckets(metrics, name)
            return {
                **{key: _times(quantile(grown, share), unit) for key, share in SHARES.items()},
                "mean": unit * whole / count,
                "count": count,
                "lowest_bound": _times(min(grown, default=None), unit),
                "is_since_start": metrics is since_start,
            }
    return None


def _grown_buckets(metrics: ServerMetrics, name: str) -> Mapping[float, float]:
    before, after = (
        bounds_of(iter(one.all(f"{PREFIX}{name}_bucket"))) for one in (metrics.before, metrics.after)
    )
    return {bound: value - before.get(bound, 0.0) for bound, value in after.items()}


def _times(value: float | None, unit: float) -> float | None:
    return None if value is None else unit * value


def _prefix_cache(between: ServerMetrics | None, since_start: ServerMetrics) -> dict[str, Any] | None:
    for metrics in (between, since_start):
        for queries_name, hits_name in zip(QUERIES, HITS, strict=True):
            queries = metrics.total(queries_name) if metrics else None
            hits = metrics.total(hits_name) if metrics else None
            if queries and hits is not None:
                return {
                    "hit_rate": hits / queries,
                    "query_tokens": queries,
                    "hit_tokens": hits,
                    "is_since_start": metrics is since_start,
                }
    return None


def _speculation(between: ServerMetrics | None, since_start: ServerMetrics) -> dict[str, Any] | None:
    """Acceptance, tokens of a verified row (its own one included), and k, the drafts allowed for a decoding row.

    Where the server does not count rows by k, `mean_k` is the number of drafts that were verified at once.
    """
    for metrics in (between, since_start):
        if metrics is None:
            continue
        drafts, drafted, accepted = (
            metrics.total(f"spec_decode_{name}") for name in (DRAFTS, DRAFTED, ACCEPTED)
        )
        if drafts and drafted and accepted is not None:
            chosen = _mean_chosen(metrics)
            return {
                "acceptance_rate": accepted / drafted,
                "tokens_per_verification": 1 + accepted / drafts,
                "mean_k": drafted / drafts if chosen is None else chosen,
                "draft_tokens": drafted,
                "is_since_start": metrics is since_start,
            }
    return None


def _mean_chosen(metrics: ServerMetrics) -> float | None:
    rows = [0.0, 0.0]
    weighted = [0.0, 0.0]
    for place, reading in enumerate((metrics.before, metrics.after)):
        for sample in reading.all(CHOSEN_ROWS):
            length = sample.labels.get("drafts", "")
            if length.isdecimal():
                rows[place] += sample.value
                weighted[place] += int(length) * sample.value
    grown = rows[1] - rows[0]
    return (weighted[1] - weighted[0]) / grown if grown > 0 else None
