"""Figures of two readings of /metrics, as vLLM writes them now and wrote them before."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.bench.live.figures import Span
from qanat.bench.live.reading import Reading, decisions_of
from qanat.core.decision import Decision
from qanat.deploy.prometheus import read_exposition
from tests.deploy.diagnose.metrics_text import counter, gauge, histogram, speculation

BOUNDS = (0.1, 0.2, 0.4, 0.8)


def reading(moment_s: float, *texts: str) -> Reading:
    return Reading(moment_s, read_exposition("".join(texts)))


def between(before: tuple[str, ...], after: tuple[str, ...], duration_s: float = 4.0) -> dict[str, Any]:
    return Span(reading(10.0, *before), reading(10.0 + duration_s, *after)).figures()


def test_rates_are_differences_over_the_time_between() -> None:
    figures = between(
        (counter("prompt_tokens", 1000), counter("generation_tokens", 500), counter("request_success", 9)),
        (counter("prompt_tokens", 1400), counter("generation_tokens", 600), counter("request_success", 11)),
    )
    assert figures["prompt_tokens_per_s"] == 100
    assert figures["generation_tokens_per_s"] == 25
    assert figures["requests_per_s"] == 0.5
    assert figures["duration_s"] == 4


def test_percentiles_are_of_what_was_observed_between_the_readings() -> None:
    """Fast ones before do not make the slow ones between look faster."""
    name = "time_to_first_token_seconds"
    fast, slow = [0.05] * 1000, [0.3] * 10
    figures = between((histogram(name, fast, BOUNDS),), (histogram(name, fast + slow, BOUNDS),))
    ttft = figures["latency_ms"]["ttft"]
    assert (ttft["count"], ttft["is_since_start"]) == (10, False)
    assert ttft["mean"] == pytest.approx(300)
    assert ttft["p50"] == pytest.approx(300) and ttft["p99"] == pytest.approx(398)
    idle = between((histogram(name, fast, BOUNDS),), (histogram(name, fast, BOUNDS),))["latency_ms"]["ttft"]
    assert (idle["count"], idle["is_since_start"]) == (1000, True)
    assert idle["p99"] <= 100


def test_replicas_are_summed_and_shown_one_by_one() -> None:
    texts = [
        gauge("num_requests_running", running, engine) + gauge("kv_cache_usage_perc", usage, engine)
        for engine, running, usage in ((0, 3, 0.25), (1, 5, 0.75))
    ]
    figures = Span(None, reading(1.0, *texts)).figures()
    assert figures["running"] == 8 and figures["kv_cache_usage"] == 0.5
    assert [one["running"] for one in figures["replicas"]] == [3, 5]
    assert figures["models"] == ["qwen"]
    assert figures["generation_tokens_per_s"] is None and figures["waiting"] is None


def test_speculation_counts_k_by_rows_where_the_server_does() -> None:
    chosen = 'qanat:spec_decode_rows_total{{drafts="{}"}} {}\n'.format
    before = (speculation(10, (9, 8, 7)), chosen(0, 5), chosen(3, 10))
    after = (speculation(30, (24, 18, 13)), chosen(0, 25), chosen(3, 30))
    found = between(before, after)["speculation"]
    assert found["acceptance_rate"] == pytest.approx((15 + 10 + 6) / 60)
    assert found["tokens_per_verification"] == pytest.approx(1 + 31 / 20)
    assert found["mean_k"] == pytest.approx(1.5)  # 20 rows without drafts, 20 with three
    plain = between(before[:1], after[:1])["speculation"]
    assert plain["mean_k"] == 3
    assert between((), (gauge("num_requests_running", 1),))["speculation"] is None


def test_older_names_of_vllm_are_understood() -> None:
    texts = (
        gauge("gpu_cache_usage_perc", 0.5),
        histogram("time_per_output_token_seconds", [0.3], BOUNDS),
        counter("gpu_prefix_cache_queries", 200),
        counter("gpu_prefix_cache_hits", 50),
    )
    figures = Span(None, reading(1.0, *texts)).figures()
    assert figures["kv_cache_usage"] == 0.5
    assert figures["latency_ms"]["itl"]["count"] == 1
    assert figures["prefix_cache"]["hit_rate"] == 0.25


def test_a_counter_that_shrank_is_a_restart() -> None:
    spans = [
        Span(
            reading(0.0, counter("generation_tokens", 50)), reading(1.0, counter("generation_tokens", value))
        )
        for value in (49, 50, 51)
    ]
    assert [one.is_restarted for one in spans] == [True, False, False]


@pytest.mark.parametrize("plan", [None, [], {}, {"decisions": 3}, {"decisions": [{"field": "--x"}]}])
def test_a_plan_without_readable_decisions_has_none(plan: object) -> None:
    assert decisions_of(plan) is None


def test_decisions_of_a_plan() -> None:
    one = {"field": "--max-num-seqs", "wanted": None, "got": 8, "why": "memory"}
    assert decisions_of({"decisions": [one]}) == (Decision("--max-num-seqs", None, 8, "memory"),)
