"""The report is well-formed, fetches nothing, escapes everything, and shows what a result holds."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.online.measures import INTENDED, SENT
from qanat.bench.report.page import page_of
from qanat.bench.report.requests import at_once_over_time, cumulative, requests_of, tokens_over_time

NASTY = '"><script>alert(1)</script>\x00\ud800&'


def detailed(num: int, latency_from: str = INTENDED, **more: Any) -> dict[str, Any]:
    """A result of requests that are due every 100 ms, sent 50 ms late, and take 20 ms and 3 gaps of 10 ms."""
    late = 0.05 if latency_from == INTENDED else 0.0
    due = [0.1 * number for number in range(num)]
    return {
        "duration": 1.0,
        "model_id": NASTY,
        "start_times": [time + 0.05 for time in due],
        "intended_times": due,
        "ttfts": [0.02 + late] * num,
        "itls": [[0.01] * 3] * num,
        "e2els": [0.05 + late] * num,
        "end_times": [time + 0.101 for time in due],
        "output_lens": [4] * num,
        "errors": [""] * num,
        "mean_ttft_ms": 70.0,
        "qanat": {
            "latency_from": latency_from,
            "verdict": "doubtful",
            "findings": [{"grade": "doubtful", "code": "drift", "text": NASTY}],
            "confidence_95": {"mean_ttft_ms": [60.0, 81.5]},
            "notes": [NASTY],
            "settings": {"label": NASTY},
        },
        **more,
    }


@pytest.mark.parametrize("num", [0, 1, 2, 700])
def test_the_page_is_well_formed_and_fetches_nothing(num: int) -> None:
    page = page_of([(NASTY, detailed(num))])
    page.encode("utf-8")
    root = ElementTree.fromstring(page.partition("\n")[2])
    assert {element.tag.rpartition("}")[2] for element in root.iter()}.isdisjoint(
        {"script", "link", "img", "iframe", "object", "a"}
    )
    assert not re.search(r"\b(src|href|url|import|on\w+)\s*[=(]", page)
    assert "<script" not in page
    assert "60.00 to 81.50" in page
    assert page.count("<svg") == (6 if num else 0)


@pytest.mark.parametrize("latency_from", [INTENDED, SENT])
def test_both_moments_follow_from_either(latency_from: str) -> None:
    (request,) = requests_of(detailed(1, latency_from))
    assert request.ttft_s(INTENDED) == pytest.approx(0.07)
    assert request.ttft_s(SENT) == pytest.approx(0.02)
    assert request.e2el_s(INTENDED) == pytest.approx(0.10)
    assert request.e2el_s(SENT) == pytest.approx(0.05)


def test_a_result_of_vllms_command_counts_from_the_sending() -> None:
    result = {
        "start_times": [1000.5, 1000.0],
        "ttfts": [0.2, 0.0],
        "itls": [[0.1, 0.1], []],
        "errors": ["", "cut"],
    }
    good, bad = requests_of(result)
    assert (good.sent_s, good.first_s, good.last_s) == pytest.approx((0.5, 0.7, 0.9))
    assert (bad.first_s, bad.last_s) == (None, None)
    assert "<svg" in page_of([("vllm", {"duration": 1.0, **result})])


def test_lists_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        requests_of(detailed(2, ttfts=[0.1]))


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=400))
def test_shares_rise_to_all_of_them(values: list[float]) -> None:
    points = cumulative(values)
    assert len(points) <= 201
    assert points == sorted(points)
    assert not values or points[-1] == (max(values), 100.0)


def test_all_tokens_are_in_the_throughput_over_time() -> None:
    requests = requests_of(detailed(10))
    points = tokens_over_time(requests)
    bin_s = 2 * points[0][0]
    assert sum(rate for _, rate in points) * bin_s == pytest.approx(40)
    assert max(value for _, value in at_once_over_time(requests, is_waiting=True)) == 1


def test_a_sweep_and_a_comparison_have_their_plots() -> None:
    run = {**detailed(3), "request_throughput": 4.0, "output_throughput": 16.0}
    runs: list[dict[str, Any]] = [
        {"rate": rate, "is_met": True, "reasons": [], "share_within_bounds": 1.0, "result": run}
        for rate in (2, 1)
    ]
    sweep = page_of([("sweep", {"highest_rate": 2.0, "runs": runs})])
    assert "Time to first token against rate" in sweep
    assert "Highest rate that meets the bounds: 2.00" in sweep
    one = {"percent": 3.0, "error_percent": 1.0, "num_pairs": 2}
    compared = {
        "answer": "B is faster",
        "differences": {"output_throughput": one},
        "pairs": [{"a": run, "b": run}],
    }
    page = page_of([("comparison", compared)])
    assert "B is faster" in page
    assert "+3.0 ± 1.0" in page
    for text in (sweep, page):
        ElementTree.fromstring(text.partition("\n")[2])
