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

    def pass_s(self, num_rows: int) -> float:
        return self.of_pass(num_rows)

    def draft_s(self, num_requests: int) -> float:
        return self.of_draft(num_requests)

    def observe(
        self, num_rows: int, pass_s: float, num_requests: int, num_drafts: int, draft_s: float
    ) -> None:
        """They stay."""


def running(name: str) -> RunningRequest:
    return RunningRequest(LiveRequest(make_request(name, 10, 1000), 0, False), 0, 64)


def settled(lengths: DraftLengths, requests: list[RunningRequest], agree: Callable[[int], int]) -> list[int]:
    """Each request's length after 400 steps in which `agree(i)` leading drafts of request i are right."""
    for _ in range(400):
        lengths.begin_step(requests)
        for i, request in enumerate(requests):
            length = lengths.length(request)
            lengths.observe(request, length, length, min(agree(i), length))
    return [lengths.length(request) for request in requests]


MEMORY_BOUND = FixedCosts(lambda num_rows: 1.0)
COMPUTE_BOUND = FixedCosts(lambda num_rows: 0.01 * num_rows)


def test_right_drafts_are_long_where_rows_cost_nothing() -> None:
    assert settled(DraftLengths(4, costs=MEMORY_BOUND), [running("a")], lambda i: 4) == [4]


def test_where_a_row_costs_as_much_as_a_token_nothing_is_drafted() -> None:
    requests = [running(str(i)) for i in range(8)]
    assert settled(DraftLengths(3, costs=COMPUTE_BOUND), requests, lambda i: 1) == [0] * 8


def test_wrong_drafts_are_given_up_when_they_cost_and_tried_again_later() -> None:
    lengths = DraftLengths(3, costs=FixedCosts(lambda rows: 1.0 + 0.1 * rows, lambda n: 0.1))
    request = running("a")
    chosen = []
    for _ in range(3000):
        lengths.begin_step([request])
        length = lengths.length(request)
        chosen.append(length)
        lengths.observe(request, length, length, 0)
    assert sum(one > 0 for one in chosen[300:]) < 0.05 * len(chosen[300:])
    assert any(chosen[300:])


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


def test_measured_costs_lie_between_their_neighbours_and_never_fall() -> None:
    costs = MeasuredCosts()
    assert costs.pass_s(4) == 0.0
    costs.observe(10, 1.0, 0, 0, 0.0)
    costs.observe(20, 2.0, 5, 4, 0.8)
    assert costs.pass_s(5) == costs.pass_s(10) == 1.0
    assert costs.pass_s(15) == pytest.approx(1.5)
    assert costs.pass_s(100) == 2.0  # larger ones are taken to cost no more, until they were tried
    assert costs.draft_s(5) == pytest.approx(0.2)
    costs.observe(40, 1.5, 0, 0, 0.0)
    assert costs.pass_s(40) == 2.0


def test_one_slow_step_counts_little_and_old_estimates_are_dropped() -> None:
    costs = MeasuredCosts()
    costs.observe(8, 1.0, 0, 0, 0.0)
    costs.observe(8, 100.0, 0, 0, 0.0)
    assert costs.pass_s(8) == pytest.approx(1.2)
    costs.observe(64, 9.0, 0, 0, 0.0)
    for _ in range(2 * NUM_FORGOTTEN_STEPS):
        costs.observe(8, 1.0, 0, 0, 0.0)
    assert costs.pass_s(64) == pytest.approx(1.0)


def test_drafts_take_no_block_that_others_need() -> None:
    """Eight blocks of 16: two requests that grow into the last ones keep each other's next token possible."""
    loop = StepLoop(num_blocks=8, max_num_seqs=2, max_draft_tokens=5)
    for name in "ab":
        loop.add(make_request(name, 30, 34))
    loop.run()
    loop.check_idle()
    assert loop.scheduler.stats().num_preemptions == 0
    assert loop.scheduler.stats().speculation.num_draft_tokens > 0
