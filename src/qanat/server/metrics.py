"""/metrics: the engine's figures in Prometheus' text format, under vLLM's names."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from qanat.engine.async_engine import AsyncEngine
from qanat.engine.metrics import EngineStats, HistogramSnapshot
from qanat.server.caller import caller_of
from qanat.server.service import Service
from qanat.structured.compiler import CompileStats

PREFIX = "vllm:"
OWN_PREFIX = "qanat:"
"""Of figures for which vLLM has no name."""
ENGINE_INDEX = "0"

HISTOGRAM_HELP = {
    "time_to_first_token_seconds": "From arrival to the first output token.",
    "inter_token_latency_seconds": "Between output tokens of one request.",
    "request_time_per_output_token_seconds": "Mean time per output token after the first, per request.",
    "e2e_request_latency_seconds": "From arrival to the end.",
    "request_queue_time_seconds": "From arrival to the first scheduled step.",
    "request_inference_time_seconds": "From the first scheduled step to the last output token.",
    "request_prefill_time_seconds": "From the first scheduled step to the first output token.",
    "request_decode_time_seconds": "From the first to the last output token.",
    "request_prompt_tokens": "Prompt tokens per request.",
    "request_generation_tokens": "Output tokens per request.",
    "request_params_max_tokens": "Output bound per request, as resolved.",
    "iteration_tokens_total": "Prompt and output tokens that one step finished.",
}


class EngineCollector(Collector):
    """Makes metric families from a snapshot whenever someone scrapes; nothing is counted here.

    Args:
        engine: whose figures.
        model_name: value of the label that all metrics carry.
        stats: the figures of all processes that serve it.
    """

    def __init__(self, engine: AsyncEngine, model_name: str, stats: EngineStats) -> None:
        self._engine = engine
        self._stats = stats
        self._labels = {"model_name": model_name, "engine": ENGINE_INDEX}

    def collect(self) -> Iterable[Metric]:
        """All families."""
        stats = self._stats
        yield from self._gauges(stats)
        yield from self._counters(stats)
        for name, snapshot in stats.histograms.items():
            yield self._histogram(name, snapshot)

    def _gauges(self, stats: EngineStats) -> Iterable[Metric]:
        yield self._gauge("num_requests_running", "Requests in the batch.", stats.num_running)
        yield self._gauge("num_requests_waiting", "Requests in the queue.", stats.num_waiting)
        yield self._gauge("kv_cache_usage_perc", "Share of KV blocks in use; 1 is all.", stats.cache_usage)
        plan = self._engine.memory_plan
        cache = {
            "block_size": str(plan.block_size),
            "num_gpu_blocks": str(plan.num_blocks),
            "num_states": str(plan.num_states),
            "cache_dtype": self._engine.config.cache.kv_cache_dtype,
        }
        yield self._gauge("cache_config_info", "How the cache is sized.", 1, cache)

    def _counters(self, stats: EngineStats) -> Iterable[Metric]:
        yield self._counter("prompt_tokens", "Tokens of prompts that were computed.", stats.num_prompt_tokens)
        yield self._counter("generation_tokens", "Tokens generated.", stats.num_output_tokens)
        yield self._counter("num_preemptions", "Requests that gave up their place.", stats.num_preemptions)
        yield self._counter(
            "prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", stats.num_prompt_tokens
        )
        yield self._counter(
            "prefix_cache_hits", "Prompt tokens found in the prefix cache.", stats.num_cached_tokens
        )
        restarts = CounterMetricFamily(
            f"{OWN_PREFIX}engine_restarts",
            "Engine processes started after one had died.",
            labels=list(self._labels),
        )
        restarts.add_metric(list(self._labels.values()), self._engine.num_restarts)
        yield restarts
        yield from self._form_counters(stats.compiler)
        family = CounterMetricFamily(
            f"{PREFIX}request_success",
            "Requests ended, by reason.",
            labels=[*self._labels, "finished_reason"],
        )
        for reason, count in stats.num_finished.items():
            family.add_metric([*self._labels.values(), reason], count)
        yield family

    def _form_counters(self, stats: CompileStats) -> Iterable[Metric]:
        """Names of our own: vLLM counts none of these."""
        for name, text, count in (
            ("compiles", "Forms of outputs given to the compile process.", stats.num_compiles),
            ("cache_hits", "Requests whose form was known or being compiled.", stats.num_cache_hits),
            ("refusals", "Requests refused for their form.", stats.num_refusals),
            ("overruns", "Forms that met a limit on time or memory.", stats.num_overruns),
            ("restarts", "Compile processes that died and were replaced.", stats.num_restarts),
        ):
            family = CounterMetricFamily(
                f"{OWN_PREFIX}structured_output_{name}", text, labels=list(self._labels)
            )
            family.add_metric(list(self._labels.values()), count)
            yield family

    def _gauge(self, name: str, text: str, value: float, labels: dict[str, str] | None = None) -> Metric:
        all_labels = {**self._labels, **(labels or {})}
        family = GaugeMetricFamily(PREFIX + name, text, labels=list(all_labels))
        family.add_metric(list(all_labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(PREFIX + name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _histogram(self, name: str, snapshot: HistogramSnapshot) -> Metric:
        family = HistogramMetricFamily(PREFIX + name, HISTOGRAM_HELP[name], labels=list(self._labels))
        buckets, count = [], 0
        bounds = [*(format(bound, "g") if bound < 1 else str(bound) for bound in snapshot.bounds), "+Inf"]
        for bound, in_bucket in zip(bounds, snapshot.counts, strict=True):
            count += in_bucket
            buckets.append((bound, count))
        family.add_metric(list(self._labels.values()), buckets, snapshot.total)
        return family


class MetricsEndpoint:
    """Handler of GET /metrics."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def metrics(self, request: Request) -> Response:
        """All figures as text: those of the engine for everybody, those of keys for admins."""
        service = self._service
        stats = await service.siblings.stats()
        text = generate_latest(EngineCollector(service.engine, service.model_name, stats))
        if caller_of(request.scope).is_admin:
            text += await service.desk.key_metrics()
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})
