from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestOutput, RequestTiming
from qanat.core.request import FinishReason, Request
from qanat.core.sampling_params import SamplingParams
from qanat.engine.metrics import EngineMetrics, Histogram, total_stats
from qanat.scheduler.stats import SchedulerStats
from qanat.structured.compiler import CompileStats


def make_request(request_id: str = "r", **fields: Any) -> Request:
    values: dict[str, Any] = {
        "prompt_token_ids": [1, 2, 3],
        "sampling": SamplingParams(max_tokens=8),
        "seed": 0,
        "arrival_time_s": 100.0,
        **fields,
    }
    return Request(request_id=request_id, **values)


def tokens(num: int, request_id: str = "r", **fields: Any) -> RequestOutput:
    return RequestOutput(request_id=request_id, new_token_ids=[7] * num, **fields)


@given(st.lists(st.floats(-10, 10)), st.lists(st.floats(-5, 5), min_size=1, unique=True).map(sorted))
def test_a_histogram_counts_every_value_in_its_bucket(values: list[float], bounds: list[float]) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    snapshot = histogram.snapshot()
    for position, bound in enumerate(snapshot.bounds):
        assert sum(snapshot.counts[: position + 1]) == sum(value <= bound for value in values)
    assert sum(snapshot.counts) == len(values)


def test_times_and_counts_of_one_request() -> None:
    metrics = EngineMetrics(clock=lambda: 104.0)
    request = make_request()
    metrics.on_admitted(request)
    metrics.on_step([tokens(1, num_cached_tokens=2)], 101.0)
    metrics.on_step([tokens(2)], 103.0)
    event = GenerationEvent(
        finish_reason=FinishReason.LENGTH,
        num_prompt_tokens=3,
        num_output_tokens=3,
        timing=RequestTiming(queue_s=0.25, prefill_s=0.75, decode_s=2.0),
    )
    metrics.on_finished(request, event)
    stats = metrics.snapshot(None)
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_output_tokens) == (3, 2, 3)
    assert stats.num_finished == {"stop": 0, "length": 1, "abort": 0, "error": 0}
    totals = {name: histogram.total for name, histogram in stats.histograms.items()}
    assert totals["time_to_first_token_seconds"] == 1.0
    assert totals["inter_token_latency_seconds"] == 2.0
    assert sum(stats.histograms["inter_token_latency_seconds"].counts) == 2
    assert totals["request_time_per_output_token_seconds"] == 1.0
    assert totals["e2e_request_latency_seconds"] == 4.0
    assert totals["request_inference_time_seconds"] == 2.75
    assert (
        totals["iteration_tokens_total"] == 2 + 2
    )  # one uncached prompt token and an output token, then two


def test_whoever_left_is_counted_once_and_forgotten() -> None:
    metrics = EngineMetrics()
    request = make_request()
    metrics.on_admitted(request)
    metrics.on_aborted(request)
    metrics.on_aborted(request)
    metrics.on_step([tokens(5)], 101.0)
    stats = metrics.snapshot(None)
    assert stats.num_finished["abort"] == 1
    assert stats.num_output_tokens == 0


def test_what_a_core_takes_along_ends_with_an_error_and_is_forgotten() -> None:
    metrics = EngineMetrics()
    requests = [make_request(name) for name in ("a", "b")]
    for request in requests:
        metrics.on_admitted(request)
    metrics.on_death()
    metrics.on_death()
    metrics.on_aborted(requests[0])
    metrics.on_step([tokens(5, "b")], 101.0)
    stats = metrics.snapshot(None)
    assert stats.num_finished == {"stop": 0, "length": 0, "abort": 0, "error": 2}
    assert stats.num_output_tokens == 0


def test_an_error_is_counted_but_not_timed() -> None:
    metrics = EngineMetrics()
    request = make_request()
    metrics.on_admitted(request)
    metrics.on_finished(request, GenerationEvent(finish_reason=FinishReason.ERROR))
    stats = metrics.snapshot(None)
    assert stats.num_finished["error"] == 1
    assert sum(stats.histograms["e2e_request_latency_seconds"].counts) == 0


def test_the_time_of_steps_is_passed_on_and_added_over_replicas() -> None:
    one = EngineMetrics().snapshot(SchedulerStats(step_s=4.0, collective_s=1.5))
    assert (one.step_s, one.collective_s) == (4.0, 1.5)
    both = total_stats({0: one, 1: one}, CompileStats())
    assert (both.step_s, both.collective_s) == (8.0, 3.0)
    assert EngineMetrics().snapshot(None).step_s == 0.0
