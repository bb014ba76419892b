"""The number of drafts follows acceptance and cost, down to none and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from qanat.scheduler.draft_costs import NUM_FORGOTTEN_STEPS, MeasuredCosts
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.scheduler.live_request import LiveRequest, RunningRequest
from tests.support.step_loop import StepLoop, make_request


@dataclass
class FixedCosts:
    """Costs that a test says.

    Attributes:
        of_pass: seconds of a pass by its rows.
        of_draft: seconds of one more draft by the number of requests.
    """

    of_pass: Callable[[int], float]
    of_draft: Callable[[int], float] = lambda _: 0.0

    def step_s(self, num_requests: int, length: int) -> float:
        return self.of_pass(num_requests * (1 + length)) + length * self.of_draft(num_requests)

    def observe(self, num_requests: int, length: int, step_s: float) -> None:
        """They stay."""


def running(name: str) -> RunningRequest:
    return RunningRequest(LiveRequest(make_request(name, 10, 1000), 0, False), 0, 64)


def step(lengths: DraftLengths, requests: list[RunningRequest], agree: Callable[[int], int]) -> list[int]:
    """One step in which `agree(i)` leading drafts of request i are right; each request's length in it."""
    chosen = [0] * len(requests)
    if lengths.begin_step(requests):
        for i, request in enumerate(requests):
            chosen[i] = lengths.length(request)
            lengths.observe(request, chosen[i], chosen[i], min(agree(i), chosen[i]))
    return chosen


def settled(lengths: DraftLengths, requests: list[RunningRequest], agree: Callable[[int], int]) -> list[int]:
    """Each request's usual length after 400 steps in which `agree(i)` leading drafts of request i are right."""
    for _ in range(400):
        step(lengths, requests, agree)
    found = [step(lengths, requests, agree) for _ in range(15)]
    return [sorted(one)[7] for one in zip(*found, strict=True)]


MEMORY_BOUND = FixedCosts(lambda num_rows: 1.0)
COMPUTE_BOUND = FixedCosts(lambda num_rows: 0.01 * num_rows)


def test_right_drafts_are_long_where_rows_cost_nothing() -> None:
    assert settled(DraftLengths(4, costs=MEMORY_BOUND), [running("a")], lambda i: 4) == [4]


def test_where_a_row_costs_as_much_as_a_token_nothing_is_drafted() -> None:
    requests = [running(str(i)) for i in range(8)]
    assert settled(DraftLengths(3, costs=COMPUTE_BOUND), requests, lambda i: 1) == [0] * 8


def test_wrong_drafts_are_given_up_when_they_cost_and_tried_again_ever_more_seldom() -> None:
    lengths = DraftLengths(3, costs=FixedCosts(lambda rows: 1.0 + 0.1 * rows, lambda n: 0.1))
    request = running("a")
    chosen = [step(lengths, [request], lambda i: 0)[0] for _ in range(6000)]
    tried = [i for i, one in enumerate(chosen) if one]
    assert len(tried) < 0.01 * len(chosen)
    assert any(one > 3000 for one in tried)


def test_drafts_that_become_right_are_taken_up_again() -> None:
    lengths = DraftLengths(3, costs=FixedCosts(lambda rows: 1.0 + 0.1 * rows, lambda n: 0.1))
    request = running("a")
    for _ in range(600):
        step(lengths, [request], lambda i: 0)
    assert step(lengths, [request], lambda i: 0) == [0]
    for _ in range(2000):
        step(lengths, [request], lambda i: 3)
    assert settled(lengths, [request], lambda i: 3) == [3]


def test_a_request_with_bad_drafts_has_fewer_than_its_neighbour() -> None:
    costs = FixedCosts(lambda rows: 1.0 + 0.1 * rows)
    good, bad = settled(
        DraftLengths(4, costs=costs), [running("good"), running("bad")], lambda i: 4 if i == 0 else 0
    )
    assert good == 4 and bad < 2


def test_drafting_itself_counts() -> None:
    dear = FixedCosts(lambda num_rows: 1.0, lambda num_requests: 0.5)
    [dear_length] = settled(DraftLengths(5, costs=dear), [running("a")], lambda i: 1)
    [free_length] = settled(DraftLengths(5, costs=MEMORY_BOUND), [running("a")], lambda i: 1)
    assert dear_length < free_length


def test_a_fixed_length_stays() -> None:
    lengths = DraftLengths(3, is_adaptive=False, costs=COMPUTE_BOUND)
    assert settled(lengths, [running("a")], lambda i: 0) == [3]


def test_counts_by_position_and_by_length() -> None:
    lengths, request = DraftLengths(3, is_adaptive=False), running("a")
    for num_drafted, num_accepted in ((3, 3), (3, 1), (2, 0), (0, 0)):
        lengths.observe(request, 3, num_drafted, num_accepted)
    counts = lengths.counts()
    assert (counts.num_drafts, counts.num_draft_tokens, counts.num_accepted_tokens) == (3, 8, 4)
    assert (list(counts.accepted_per_position), list(counts.rows_per_length)) == ([2, 1, 1], [0, 0, 0, 4])
    assert (request.live.num_drafted, request.live.num_accepted) == (8, 4)


def measure(costs: MeasuredCosts, num_requests: int, length: int, *seconds: float) -> None:
    """The first of them does not count, as it is another kind of step than the one before."""
    costs.observe(num_requests, length + 1, 0.0)
    for one in (0.0, *seconds):
        costs.observe(num_requests, length, one)


def test_measured_costs_lie_between_those_of_other_lengths() -> None:
    costs = MeasuredCosts()
    measure(costs, 8, 0, 1.0)
    assert costs.step_s(8, 0) == 1.0
    assert costs.step_s(8, 2) == costs.step_s(9, 4) == costs.step_s(20, 0) == 0.0
    measure(costs, 8, 4, 3.0)
    assert costs.step_s(8, 1) == pytest.approx(1.5)
    measure(costs, 8, 1, 2.5)
    assert costs.step_s(8, 1) == 2.5


def test_one_slow_step_counts_little_and_old_estimates_are_dropped() -> None:
    costs = MeasuredCosts()
    measure(costs, 8, 0, 5.0, 1.0, 1.0)
    measure(costs, 8, 0, 100.0)
    assert costs.step_s(8, 0) == pytest.approx(1.05)
    measure(costs, 64, 0, 9.0)
    measure(costs, 8, 0, *[1.0] * 2 * NUM_FORGOTTEN_STEPS)
    assert costs.step_s(8, 0) == pytest.approx(1.0)
    assert costs.step_s(64, 0) == 0.0


def test_both_kinds_of_steps_are_measured_before_one_is_chosen() -> None:
    """Steps with drafts take four times as long and all drafts are right, so that plain ones are better by a little."""
    lengths, request = DraftLengths(2), running("a")
    chosen = []
    for _ in range(100):
        [length] = step(lengths, [request], lambda i: 2)
        chosen.append(length)
        lengths.observe_step(1, length, 4.0 if length else 1.0, 0.0)
    assert chosen[:8] == [2, 2, 2, 2, 0, 0, 0, 0]
    assert not any(chosen[8:])


def test_where_no_cost_is_ever_told_steps_become_plain() -> None:
    lengths, request = DraftLengths(2), running("a")
    chosen = [step(lengths, [request], lambda i: 2)[0] for _ in range(600)]
    assert sum(one > 0 for one in chosen) < 60


def test_drafts_take_no_block_that_others_need() -> None:
    """Eight blocks of 16: two requests that grow into the last ones keep each other's next token possible."""
    loop = StepLoop(num_blocks=8, max_num_seqs=2, max_draft_tokens=5)
    for name in "ab":
        loop.add(make_request(name, 30, 34))
    loop.run()
    loop.check_idle()
    assert loop.scheduler.stats().num_preemptions == 0
    assert loop.scheduler.stats().speculation.num_draft_tokens > 0


def test_eng_021_drafts_of_which_hardly_any_is_right_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lengths, request = DraftLengths(2, is_adaptive=False), running("a")
    for i in range(520):  # 0.096 of the first thousand are right, less than 0.05 of the second
        lengths.observe(request, 2, 2, 2 if i % 10 == 0 else 0)
    assert not caplog.records
    for i in range(1500):
        lengths.observe(request, 2, 2, 1 if i % 15 == 0 else 0)
    [record] = caplog.records
    assert record.levelname == "WARNING" and "1000 drafted tokens" in record.getMessage()
    assert "--speculative-config" in record.getMessage()
