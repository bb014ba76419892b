"""The figures, read back by the library that the engine's part uses."""

from __future__ import annotations

import pytest

from qanat.router.access_log import Record
from qanat.router.metrics import MAX_SERIES, Counter, Histogram, RouterMetrics

parser = pytest.importorskip("prometheus_client.parser")


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_from_their_records() -> None:
    metrics = RouterMetrics()
    record = Record("id", 0.0, endpoint="a", reason="prefix-75%", num_prompt_tokens=7, num_output_tokens=5)
    record.num_retries, record.num_continued = 2, 1
    record.first_byte_s = 0.2
    metrics.count(record, "/v1/completions", 200, 3.0)
    metrics.count(Record("id", 0.0, error="queue_full"), "/v1/completions", 429, 0.001)
    figures = read(metrics.text())
    labels = (("endpoint", "a"), ("path", "/v1/completions"), ("status", "200"))
    assert figures["qanat_router_requests_total", labels] == 1
    assert figures["qanat_router_choices_total", (("reason", "prefix"),)] == 1
    assert figures["qanat_router_errors_total", (("code", "queue_full"),)] == 1
    assert figures["qanat_router_output_tokens_total", ()] == 5
    assert figures["qanat_router_retries_total", ()] == 2
    assert figures["qanat_router_continuations_total", ()] == 1
    assert figures["qanat_router_request_duration_seconds_count", ()] == 2
    assert figures["qanat_router_request_duration_seconds_bucket", (("le", "5"),)] == 2
    assert figures["qanat_router_request_duration_seconds_bucket", (("le", "2.5"),)] == 1
    assert figures["qanat_router_first_byte_seconds_sum", ()] == 0.2


def test_labels_are_written_so_that_any_text_can_be_read_back() -> None:
    counter = Counter("odd_total", "Odd.", ("name",))
    counter.add('a"b\\c\nd')
    (key,) = read("\n".join(counter.lines()) + "\n")
    assert key[1] == (("name", 'a"b\\c\nd'),)


def test_a_counter_has_a_bounded_number_of_series() -> None:
    counter = Counter("many_total", "Many.", ("name",))
    for number in range(MAX_SERIES + 10):
        counter.add(str(number))
    assert counter.value("other") == 10


def test_a_value_on_a_bound_is_within_it() -> None:
    histogram = Histogram("x", "X.", (1, 2))
    for value in (1, 1.5, 99):
        histogram.add(value)
    assert [line.rsplit(" ")[-1] for line in histogram.lines()][2:5] == ["1", "2", "3"]


def test_gauges_are_asked_when_they_are_read() -> None:
    metrics = RouterMetrics()
    figures: list[float] = [1]
    metrics.gauge("now", "Now.", (), lambda: [((), figures[0])])
    assert read(metrics.text())["qanat_router_now", ()] == 1
    figures[0] = 2.5
    assert read(metrics.text())["qanat_router_now", ()] == 2.5
