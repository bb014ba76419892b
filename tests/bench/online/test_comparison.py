from __future__ import annotations

import math

import pytest

from qanat.bench.online.comparison import comparison_lines, differences, headline


def pairs_of(ratios: list[float], key: str) -> list[tuple[dict[str, float], dict[str, float]]]:
    return [({key: 100.0 + place}, {key: (100.0 + place) * ratio}) for place, ratio in enumerate(ratios)]


def test_a_difference_has_students_interval_over_the_pairs() -> None:
    ratios = [1.03, 1.02, 1.04, 1.03, 1.035, 1.025]
    (found,) = differences(pairs_of(ratios, "output_throughput"))
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / 6
    deviation = math.sqrt(sum((one - mean) ** 2 for one in logs) / 5)
    assert found.mean == pytest.approx(math.exp(mean) - 1)
    assert found.error == pytest.approx(2.571 * deviation / math.sqrt(6) * math.exp(mean), rel=1e-3)
    assert found.is_shown
    assert found.text() == "B is 3.0 % +- 0.7 % faster, n = 6"


def test_times_are_faster_where_they_are_shorter() -> None:
    (found,) = differences(pairs_of([0.5, 0.5001], "mean_e2el_ms"))
    assert found.mean == pytest.approx(1.0, abs=1e-3)
    (found,) = differences(pairs_of([2.0, 2.0001], "mean_e2el_ms"))
    assert "slower" in found.text()


def test_noise_is_no_difference_and_missing_figures_are_left_out() -> None:
    noisy = pairs_of([1.1, 0.92, 1.05, 0.96], "mean_ttft_ms")
    (found,) = differences(noisy)
    assert found.text().startswith("no difference is shown: ")
    assert differences([({"mean_tpot_ms": None}, {"mean_tpot_ms": 3.0})] * 4) == []  # type: ignore[dict-item]
    assert differences(pairs_of([1.1], "mean_ttft_ms")) == []
    assert "mean TTFT" in list(comparison_lines(noisy, [found]))[1]


def test_the_headline_is_throughput_without_a_rate_and_latency_with_one() -> None:
    both = [
        ({"output_throughput": 1.0, "mean_e2el_ms": 1.0}, {"output_throughput": 2.0, "mean_e2el_ms": 2.0})
    ] * 2
    found = differences(both)
    for has_rate, key in ((False, "output_throughput"), (True, "mean_e2el_ms")):
        one = headline(found, has_rate=has_rate)
        assert one is not None and one.key == key
    assert headline([], has_rate=True) is None
