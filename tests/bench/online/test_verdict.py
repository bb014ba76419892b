from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from qanat.bench.client.load import LoadRecord
from qanat.bench.online.answer import Answer
from qanat.bench.online.verdict import Grade, Run, grade_of, judge
from tests.bench.online.scripted import answer_of, streamed


def answers(count: int = 120, *, late_ms: float = 0.0, growth_ms: float = 0.0) -> list[Answer]:
    """Requests every 10 ms, each with a first token after 50 ms and a last one after 90 ms."""
    found = []
    for number in range(count):
        at = 10.0 * number
        lasts = at + late_ms + growth_ms * number
        found.append(
            streamed(
                [lasts + 50 + 10 * n for n in range(5)], index=number, intended_ms=at, sent_ms=at + late_ms
            )
        )
    return found


def run_of(found: Sequence[Answer], **more: object) -> Run:
    load = LoadRecord(start_ns=0, end_ns=2_000_000_000, cpu_s=0.2, beat_delays_s=[0.0001] * 100)
    run = Run(load, found, len(found), 100.0, 0, (99.0,), False, 0.0, False)
    return replace(run, **more)  # type: ignore[arg-type]


def codes(run: Run) -> dict[str, Grade]:
    return {finding.code: finding.grade for finding in judge(run)}


def test_a_quiet_run_has_no_finding() -> None:
    assert codes(run_of(answers())) == {}
    assert grade_of([]) is Grade.NOTE


def test_a_late_client_makes_the_run_invalid() -> None:
    assert codes(run_of(answers(late_ms=8))) == {}
    assert codes(run_of(answers(late_ms=15))) == {"client_late": Grade.INVALID}
    busy = LoadRecord(end_ns=1, beat_delays_s=[0.001] * 90 + [0.03] * 10)
    assert codes(run_of(answers(), load=busy)) == {"client_overloaded": Grade.INVALID}


def test_waiting_for_a_place_is_not_the_clients_fault() -> None:
    held = answers(late_ms=500)
    for answer in held:
        answer.ready_s = answer.sent_s
    assert "client_late" not in codes(run_of(held))


def test_too_few_answers_for_a_percentile_are_told() -> None:
    assert codes(run_of(answers(99))) == {"too_few_samples": Grade.DOUBTFUL}
    assert codes(run_of(answers(20), percentiles=(95.0,))) == {}


def test_failures_are_counted_by_kind_and_all_of_them_are_invalid() -> None:
    failed = [answer_of([], index=number, failure="refused") for number in range(30)]
    found = judge(run_of([*answers(), *failed]))
    assert [finding.code for finding in found] == ["errors"]
    assert "30 of 150 requests failed (refused: 30)" in found[0].text
    assert codes(run_of(failed, rate=math.inf)) == {"errors": Grade.INVALID}
    assert codes(run_of([], num_planned=5)) == {"nothing_sent": Grade.INVALID}
    assert codes(run_of(answers(), num_planned=500)) == {"stopped": Grade.DOUBTFUL}


def test_drift_is_told_where_a_steady_state_was_meant() -> None:
    growing = answers(growth_ms=1.0)
    assert codes(run_of(growing)) == {"drift": Grade.DOUBTFUL}
    assert codes(run_of(growing, rate=math.inf)) == {}
    assert codes(run_of(growing, rate=math.inf, max_concurrency=4)) == {"drift": Grade.DOUBTFUL}


def test_a_rate_that_was_not_reached_is_told() -> None:
    held = answers()
    for number, answer in enumerate(held):
        answer.sent_s = answer.ready_s = 0.02 * number
    found = judge(run_of(held, max_concurrency=4))
    assert "rate_not_reached" in {finding.code for finding in found}
    text = next(finding.text for finding in found if finding.code == "rate_not_reached")
    assert text.startswith("50.00 requests a second were sent where 100 were asked for")


@pytest.mark.parametrize(
    ("share", "shares", "is_told"), [(0.02, False, True), (0.005, False, False), (0.9, True, False)]
)
def test_hits_in_the_prefix_cache_are_told_where_none_is_meant(
    share: float, shares: bool, is_told: bool
) -> None:
    assert ("prefix_cache" in codes(run_of(answers(), cached_share=share, shares_prefixes=shares))) == is_told


def test_loops_weigh_more_where_the_server_drafts() -> None:
    loops = [streamed(list(range(1, 41)), index=number) for number in range(120)]
    assert codes(run_of(loops, rate=math.inf)) == {"repetition": Grade.NOTE}
    assert codes(run_of(loops, rate=math.inf, has_speculation=True)) == {"repetition": Grade.DOUBTFUL}


def test_single_chunks_are_told() -> None:
    assert codes(run_of([*answers(), streamed([5], tokens=9)], rate=math.inf)) == {
        "single_chunk": Grade.DOUBTFUL
    }
