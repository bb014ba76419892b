"""/metrics: the engine's figures in Prometheus' text format, under vLLM's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from qanat.engine.async_engine import AsyncEngine
from qanat.engine.metrics import EngineStats
from qanat.server.caller import caller_of
from qanat.server.prefix_metrics import OWN_PREFIX, PREFIX_COUNTERS, PREFIX_GAUGES
from qanat.server.service import Service
from qanat.structured.compiler import CompileStats

PREFIX = "vllm:"
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

LABELS = ["model_name", "engine"]

COUNTERS: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    (f"{PREFIX}prompt_tokens", "Tokens of prompts that were computed.", lambda one: one.num_prompt_tokens),
    (f"{PREFIX}generation_tokens", "Tokens generated.", lambda one: one.num_output_tokens),
    (f"{PREFIX}num_preemptions", "Requests that gave up their place.", lambda one: one.num_preemptions),
    (
        f"{PREFIX}prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        lambda one: one.num_prompt_tokens,
    ),
    (
        f"{PREFIX}prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        lambda one: one.num_cached_tokens,
    ),
    (
        f"{OWN_PREFIX}engine_restarts",
        "Engine processes started after one had died.",
        lambda one: one.num_restarts,
    ),
    (f"{OWN_PREFIX}step_seconds", "Seconds that the engine's steps took.", lambda one: one.step_s),
    (
        f"{OWN_PREFIX}collective_seconds",
        "Of those, seconds in exchanges between tensor-parallel ranks, waiting for slower ones included.",
        lambda one: one.collective_s,
    ),
    (f"{OWN_PREFIX}graph_captures", "Graphs captured.", lambda one: one.graphs.num_captures),
    (f"{OWN_PREFIX}graph_capture_seconds", "Seconds that it took.", lambda one: one.graphs.capture_s),
    (
        f"{OWN_PREFIX}step_arena_misses",
        "Outputs of native ops that the arena of a step had no room for.",
        lambda one: one.graphs.num_arena_misses,
    ),
    (
        f"{PREFIX}spec_decode_num_drafts",
        "Times that drafts of a request were verified.",
        lambda one: one.speculation.num_drafts,
    ),
    (
        f"{PREFIX}spec_decode_num_draft_tokens",
        "Drafts verified.",
        lambda one: one.speculation.num_draft_tokens,
    ),
    (
        f"{PREFIX}spec_decode_num_accepted_tokens",
        "Drafts that were right.",
        lambda one: one.speculation.num_accepted_tokens,
    ),
    (
        f"{OWN_PREFIX}spec_decode_draft_seconds",
        "Seconds that making drafts took.",
        lambda one: one.speculation.draft_s,
    ),
)
"""Name, meaning and source of the plain counters."""


class EngineCollector(Collector):
    """Makes metric families from a snapshot whenever someone scrapes; nothing is counted here.

    Each figure comes once for each replica, with its rank as the label `engine`; those about forms, which replicas
    share, come once, with the lowest rank.

    Args:
        engine: whose figures.
        model_name: value of the label that all metrics carry.
        stats: the figures of all processes that serve it.
    """

    def __init__(self, engine: AsyncEngine, model_name: str, stats: EngineStats) -> None:
        self._engine = engine
        self._stats = stats
        self._model_name = model_name

    def collect(self) -> Iterable[Metric]:
        """All families."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._graph_counters()
        yield from self._draft_counters()
        yield from self._form_counters(self._stats.compiler)
        for name, text in HISTOGRAM_HELP.items():
            yield self._histogram(name, text)

    def _gauges(self) -> Iterable[Metric]:
        yield self._gauge("num_requests_running", "Requests in the batch.", lambda one: one.num_running)
        yield self._gauge("num_requests_waiting", "Requests in the queue.", lambda one: one.num_waiting)
        yield self._gauge(
            "kv_cache_usage_perc", "Share of KV blocks in use; 1 is all.", lambda one: one.cache_usage
        )
        for name, text, read in PREFIX_GAUGES:
            yield self._gauge(name, text, read)
        names = ["block_size", "num_gpu_blocks", "num_states", "cache_dtype", "enable_prefix_caching"]
        family = GaugeMetricFamily(
            f"{PREFIX}cache_config_info", "How the cache is sized.", labels=[*LABELS, *names]
        )
        for replica in self._engine.replicas:
            plan = replica.memory_plan
            values = [str(plan.block_size), str(plan.num_blocks), str(plan.num_states)]
            values += [replica.config.cache.kv_cache_dtype, str(replica.config.prefix_cache is not None)]
            family.add_metric([*self._labels(replica.rank), *values], 1)
        yield family

    def _counters(self) -> Iterable[Metric]:
        for name, text, read in (*COUNTERS, *PREFIX_COUNTERS):
            family = CounterMetricFamily(name, text, labels=LABELS)
            for rank, stats in self._stats.replicas.items():
                family.add_metric(self._labels(rank), read(stats))
            yield family
        family = CounterMetricFamily(
            f"{PREFIX}request_success", "Requests ended, by reason.", labels=[*LABELS, "finished_reason"]
        )
        for rank, stats in self._stats.replicas.items():
            for reason, count in stats.num_finished.items():
                family.add_metric([*self._labels(rank), reason], count)
        yield family

    def _graph_counters(self) -> Iterable[Metric]:
        replays = CounterMetricFamily(
            f"{OWN_PREFIX}graph_replays", "Steps that ran as graphs.", labels=[*LABELS, "kind"]
        )
        eager = CounterMetricFamily(
            f"{OWN_PREFIX}eager_decode_steps",
            "Steps of decoding requests alone that ran without a graph.",
            labels=[*LABELS, "reason"],
        )
        for rank, stats in self._stats.replicas.items():
            for kind, count in stats.graphs.num_replays.items():
                replays.add_metric([*self._labels(rank), kind], count)
            for reason, count in stats.graphs.num_eager_decodes.items():
                eager.add_metric([*self._labels(rank), reason], count)
        yield replays
        yield eager

    def _draft_counters(self) -> Iterable[Metric]:
        accepted = CounterMetricFamily(
            f"{PREFIX}spec_decode_num_accepted_tokens_per_pos",
            "Drafts that were right, by their place.",
            labels=[*LABELS, "position"],
        )
        chosen = CounterMetricFamily(
            f"{OWN_PREFIX}spec_decode_rows",
            "Decoding rows of steps, by the number of drafts that was chosen for them.",
            labels=[*LABELS, "drafts"],
        )
        for rank, stats in self._stats.replicas.items():
            for position, count in enumerate(stats.speculation.accepted_per_position):
                accepted.add_metric([*self._labels(rank), str(position)], count)
            for length, count in enumerate(stats.speculation.rows_per_length):
                chosen.add_metric([*self._labels(rank), str(length)], count)
        yield accepted
        yield chosen

    def _form_counters(self, stats: CompileStats) -> Iterable[Metric]:
        """Names of our own: vLLM counts none of these."""
        for name, text, count in (
            ("compiles", "Forms of outputs given to the compile process.", stats.num_compiles),
            ("cache_hits", "Requests whose form was known or being compiled.", stats.num_cache_hits),
            ("refusals", "Requests refused for their form.", stats.num_refusals),
            ("overruns", "Forms that met a limit on time or memory.", stats.num_overruns),
            ("restarts", "Compile processes that died and were replaced.", stats.num_restarts),
        ):
            family = CounterMetricFamily(f"{OWN_PREFIX}structured_output_{name}", text, labels=LABELS)
            family.add_metric(self._labels(min(self._stats.replicas)), count)
            yield family

    def _gauge(self, name: str, text: str, read: Callable[[EngineStats], float]) -> Metric:
        family = GaugeMetricFamily(name if ":" in name else PREFIX + name, text, labels=LABELS)
        for rank, stats in self._stats.replicas.items():
            family.add_metric(self._labels(rank), read(stats))
        return family

    def _histogram(self, name: str, text: str) -> Metric:
        family = HistogramMetricFamily(PREFIX + name, text, labels=LABELS)
        for rank, stats in self._stats.replicas.items():
            snapshot = stats.histograms[name]
            buckets, count = [], 0
            bounds = [*(format(bound, "g") if bound < 1 else str(bound) for bound in snapshot.bounds), "+Inf"]
            for bound, in_bucket in zip(bounds, snapshot.counts, strict=True):
                count += in_bucket
                buckets.append((bound, count))
            family.add_metric(self._labels(rank), buckets, snapshot.total)
        return family

    def _labels(self, rank: int) -> list[str]:
        return [self._model_name, str(rank)]


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
