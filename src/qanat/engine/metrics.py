"""What the front end counts: plain integers and histograms, cheap in the token loop and rendered elsewhere."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from qanat.cache.prefix_stats import PrefixStats, total_prefix_stats
from qanat.core.events import GenerationEvent
from qanat.core.graph_counts import GraphCounts, total_graph_counts
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request
from qanat.core.speculation import SpeculationCounts, total_speculation_counts
from qanat.scheduler.stats import SchedulerStats
from qanat.structured.compiler import CompileStats

FIRST_TOKEN_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_GAP_BUCKETS_S = (
    *(
        0.01,
        0.025,
        0.05,
        0.075,
        0.1,
        0.15,
        0.2,
        0.3,
        0.4,
        0.5,
        0.75,
        1.0,
        2.5,
        5.0,
        7.5,
        10.0,
        20.0,
        40.0,
        80.0,
    ),
)
LATENCY_BUCKETS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
TOKEN_COUNT_BUCKETS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
STEP_TOKEN_BUCKETS = (1.0, *(float(2**power) for power in range(3, 15)))

HISTOGRAM_BUCKETS: dict[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": FIRST_TOKEN_BUCKETS_S,
    "inter_token_latency_seconds": TOKEN_GAP_BUCKETS_S,
    "request_time_per_output_token_seconds": TOKEN_GAP_BUCKETS_S,
    "e2e_request_latency_seconds": LATENCY_BUCKETS_S,
    "request_queue_time_seconds": LATENCY_BUCKETS_S,
    "request_inference_time_seconds": LATENCY_BUCKETS_S,
    "request_prefill_time_seconds": LATENCY_BUCKETS_S,
    "request_decode_time_seconds": LATENCY_BUCKETS_S,
    "request_prompt_tokens": TOKEN_COUNT_BUCKETS,
    "request_generation_tokens": TOKEN_COUNT_BUCKETS,
    "request_params_max_tokens": TOKEN_COUNT_BUCKETS,
    "iteration_tokens_total": STEP_TOKEN_BUCKETS,
}
"""Every histogram by the name that vLLM gives it (without its prefix), with the upper bounds of its buckets."""


class HistogramSnapshot(msgspec.Struct, frozen=True):
    """A histogram at one moment.

    Attributes:
        bounds: upper bounds of the buckets, ascending; one more bucket without a bound follows.
        counts: observations per bucket, not cumulative, one more than bounds.
        total: sum of all observed values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Counts values into fixed buckets; a value equal to a bound belongs to that bound's bucket."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Adds `count` observations of `value`."""
        self._counts[bisect.bisect_left(self._bounds, value)] += count
        self._total += value * count

    def snapshot(self) -> HistogramSnapshot:
        """A copy that later observations do not change."""
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._total)


class EngineStats(msgspec.Struct, kw_only=True, frozen=True):
    """All figures of one engine at one moment.

    Attributes:
        num_running: requests that hold a batch row.
        num_waiting: requests in the queue.
        cache_usage: share of KV blocks in use, in [0, 1].
        num_preemptions: since the start.
        num_prompt_tokens: tokens of all prompts whose first output token came.
        num_cached_tokens: of those, how many the prefix cache supplied.
        num_output_tokens: tokens generated, those of aborted requests included.
        num_finished: requests ended since the start, by finish reason.
        compiler: forms compiled, remembered, refused.
        histograms: by the names of HISTOGRAM_BUCKETS.
        num_restarts: cores started, or tried to be, after one had died.
        step_s: seconds that the core's steps have taken since its start.
        collective_s: of those, seconds in exchanges between the ranks that share the model.
        graphs: how the steps ran.
        speculation: what became of drafts.
        prefixes: what is kept for reuse.
        replicas: the figures of each replica by its rank; they are not asked for forms, so `compiler` is empty.
    """

    num_running: int
    num_waiting: int
    cache_usage: float
    num_preemptions: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_finished: dict[str, int]
    compiler: CompileStats
    histograms: dict[str, HistogramSnapshot]
    num_restarts: int = 0
    step_s: float = 0.0
    collective_s: float = 0.0
    graphs: GraphCounts = GraphCounts()
    speculation: SpeculationCounts = SpeculationCounts()
    prefixes: PrefixStats = PrefixStats()
    replicas: dict[int, EngineStats] = {}


def total_stats(replicas: Mapping[int, EngineStats], compiler: CompileStats) -> EngineStats:
    """The figures of several replicas, at least one, as those of one engine; the use of caches is their mean."""
    every = list(replicas.values())
    return EngineStats(
        num_running=sum(one.num_running for one in every),
        num_waiting=sum(one.num_waiting for one in every),
        cache_usage=sum(one.cache_usage for one in every) / len(every),
        num_preemptions=sum(one.num_preemptions for one in every),
        num_prompt_tokens=sum(one.num_prompt_tokens for one in every),
        num_cached_tokens=sum(one.num_cached_tokens for one in every),
        num_output_tokens=sum(one.num_output_tokens for one in every),
        num_finished={
            reason: sum(one.num_finished[reason] for one in every) for reason in every[0].num_finished
        },
        compiler=compiler,
        histograms={
            name: added_histograms([one.histograms[name] for one in every]) for name in every[0].histograms
        },
        num_restarts=sum(one.num_restarts for one in every),
        step_s=sum(one.step_s for one in every),
        collective_s=sum(one.collective_s for one in every),
        graphs=total_graph_counts([one.graphs for one in every]),
        speculation=total_speculation_counts([one.speculation for one in every]),
        prefixes=total_prefix_stats([one.prefixes for one in every]),
        replicas=dict(replicas),
    )


def added_histograms(every: Sequence[HistogramSnapshot]) -> HistogramSnapshot:
    """Observations of several histograms with the same buckets, at least one, in one."""
    counts = tuple(sum(column) for column in zip(*(one.counts for one in every), strict=True))
    return HistogramSnapshot(every[0].bounds, counts, sum(one.total for one in every))


@dataclass(slots=True)
class _LiveRequest:
    """Times of one request that has not ended, on the monotonic clock."""

    arrival_s: float
    num_prompt_tokens: int
    num_prior_tokens: int
    first_token_s: float | None = None
    last_token_s: float = 0.0


class EngineMetrics:
    """Accumulates counters and histograms from the front end's view of requests.

    Args:
        clock: monotonic seconds, the same clock as `Request.arrival_time_s`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._live: dict[str, _LiveRequest] = {}
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._num_finished = {reason.value: 0 for reason in FinishReason}
        self._histograms = {name: Histogram(bounds) for name, bounds in HISTOGRAM_BUCKETS.items()}

    def on_admitted(self, request: Request) -> None:
        """A request (one choice) is on its way to the core."""
        self._live[request.request_id] = _LiveRequest(
            request.arrival_time_s, request.num_prompt_tokens, request.num_output_tokens
        )
        if request.sampling.max_tokens is not None:
            self._observe("request_params_max_tokens", request.sampling.max_tokens)

    def on_step(self, outputs: Sequence[RequestOutput], now_s: float) -> None:
        """A step of the core ended at `now_s` with these outputs."""
        num_tokens = 0
        for output in outputs:
            live = self._live.get(output.request_id)
            num_new = len(output.new_token_ids)
            if live is None or num_new == 0:
                continue
            num_tokens += num_new
            if live.first_token_s is None:
                live.first_token_s = now_s
                num_tokens += live.num_prompt_tokens - output.num_cached_tokens
                self._num_prompt_tokens += live.num_prompt_tokens
                self._num_cached_tokens += output.num_cached_tokens
                self._observe("time_to_first_token_seconds", now_s - live.arrival_s)
            else:  # tokens accepted together share the gap
                self._observe("inter_token_latency_seconds", (now_s - live.last_token_s) / num_new, num_new)
            live.last_token_s = now_s
            self._num_output_tokens += num_new
        if num_tokens:
            self._observe("iteration_tokens_total", num_tokens)

    def on_finished(self, request: Request, event: GenerationEvent) -> None:
        """A choice ended with this event."""
        assert event.finish_reason is not None
        live = self._live.pop(request.request_id, None)
        self._num_finished[event.finish_reason.value] += 1
        if live is None or event.finish_reason is FinishReason.ERROR:
            return
        if live.first_token_s is None:  # only the prompt was evaluated
            self._num_prompt_tokens += live.num_prompt_tokens
        self._observe("e2e_request_latency_seconds", self._clock() - live.arrival_s)
        self._observe("request_prompt_tokens", event.num_prompt_tokens)
        num_generated = event.num_output_tokens - live.num_prior_tokens
        self._observe("request_generation_tokens", num_generated)
        if live.first_token_s is not None and num_generated > 1:
            decode_s = live.last_token_s - live.first_token_s
            self._observe("request_time_per_output_token_seconds", decode_s / (num_generated - 1))
        if event.timing is not None:
            timing = event.timing
            self._observe("request_queue_time_seconds", timing.queue_s)
            self._observe("request_prefill_time_seconds", timing.prefill_s)
            self._observe("request_decode_time_seconds", timing.decode_s)
            self._observe("request_inference_time_seconds", timing.prefill_s + timing.decode_s)

    def on_aborted(self, request: Request) -> None:
        """The caller went away before the request ended."""
        if self._live.pop(request.request_id, None) is not None:
            self._num_finished[FinishReason.ABORT.value] += 1

    def on_death(self) -> None:
        """The core is gone: what has not ended ends with an error."""
        self._num_finished[FinishReason.ERROR.value] += len(self._live)
        self._live.clear()

    def on_refused(self, request: Request) -> None:
        """The core did not take the request; it counts nowhere."""
        self._live.pop(request.request_id, None)

    def snapshot(
        self, scheduler: SchedulerStats | None, compiler: CompileStats | None = None, *, num_restarts: int = 0
    ) -> EngineStats:
        """All figures now; the scheduler's are zero before its first step."""
        return EngineStats(
            num_running=scheduler.num_running if scheduler else 0,
            num_waiting=scheduler.num_waiting if scheduler else 0,
            cache_usage=scheduler.cache_usage if scheduler else 0.0,
            num_preemptions=scheduler.num_preemptions if scheduler else 0,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=self._num_output_tokens,
            num_finished=dict(self._num_finished),
            compiler=compiler or CompileStats(),
            histograms={name: histogram.snapshot() for name, histogram in self._histograms.items()},
            num_restarts=num_restarts,
            step_s=scheduler.step_s if scheduler else 0.0,
            collective_s=scheduler.collective_s if scheduler else 0.0,
            graphs=scheduler.graphs if scheduler else GraphCounts(),
            speculation=scheduler.speculation if scheduler else SpeculationCounts(),
            prefixes=scheduler.prefixes if scheduler else PrefixStats(),
        )

    def _observe(self, name: str, value: float, count: int = 1) -> None:
        self._histograms[name].observe(value, count)
