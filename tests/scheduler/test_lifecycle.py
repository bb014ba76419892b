"""Ends that do not come from tokens: aborts, deadlines, failures; and steps in flight."""

from __future__ import annotations

import pytest

from qanat.core.request import FinishReason, RequestStatus
from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import StepLoop, make_request


def test_abort_while_waiting_running_and_preempted_frees_everything() -> None:
    loop = StepLoop(max_num_seqs=2)
    for name in ("running", "preempted", "waiting"):
        loop.add(make_request(name, 20, 30))
    loop.step()
    loop.scheduler.preempt("preempted")
    for name in ("running", "preempted", "waiting"):
        loop.abort(name)
        loop.cache.check_integrity()
        assert loop.ends[name].finish_reason is FinishReason.ABORT
        assert loop.requests[name].status is RequestStatus.FINISHED
    loop.check_idle()
    assert loop.scheduler.schedule() is None


def test_a_second_abort_and_an_abort_of_an_unknown_request_do_nothing() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 20))
    loop.step()
    loop.abort("a")
    assert loop.scheduler.abort("a") is None
    assert loop.scheduler.abort("never seen") is None
    loop.check_idle()


def test_results_of_an_aborted_row_are_ignored_and_its_resources_freed_once() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 20))
    loop.add(make_request("b", 20))
    batch = loop.scheduler.schedule()
    assert batch is not None
    output = loop.executor.execute(batch).result()
    loop.abort("a")
    loop.cache.check_integrity()
    loop.take(loop.scheduler.update(batch, output))
    loop.cache.check_integrity()
    assert (len(loop.tokens["a"]), len(loop.tokens["b"])) == (0, 1)
    loop.run()
    loop.check_idle()


def test_an_id_used_again_while_the_old_row_is_in_flight_gets_its_own_tokens() -> None:
    loop = StepLoop(max_num_seqs=1)
    loop.add(make_request("a", [1, 2, 3], 5))
    batch = loop.scheduler.schedule()
    assert batch is not None
    output = loop.executor.execute(batch).result()
    loop.abort("a")
    del loop.ends["a"]
    again = make_request("a", [7, 8], 5)
    loop.add(again)
    loop.take(loop.scheduler.update(batch, output))
    assert loop.tokens["a"] == []
    loop.run()
    assert loop.tokens["a"] == undisturbed_output(again, 97)
    loop.check_idle()


def test_a_row_is_freed_and_entered_in_one_step() -> None:
    loop = StepLoop(max_num_seqs=1)
    loop.add(make_request("a", 20, 1))
    loop.add(make_request("b", 20, 1))
    loop.step()
    batch = loop.step()
    assert batch is not None
    assert batch.freed_rows == [0]
    assert [(new.row, new.request_id) for new in batch.new_rows] == [(0, "b")]


def test_freed_rows_are_reported_once_with_the_next_step_however_late() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 20, 1))
    loop.run()
    assert loop.step() is None
    loop.add(make_request("b", 20, 2))
    batch, following = loop.step(), loop.step()
    assert batch is not None and following is not None
    assert (batch.freed_rows, following.freed_rows) == ([0], [])


def test_the_lowest_free_row_is_used_first() -> None:
    loop = StepLoop(max_num_seqs=4)
    for name in ("a", "b", "c", "d"):
        loop.add(make_request(name, 5, 20))
    loop.step()
    assert [loop.requests[name].row for name in "abcd"] == [0, 1, 2, 3]
    loop.abort("c")
    loop.abort("b")
    assert loop.requests["b"].row == -1
    loop.add(make_request("e", 5, 20))
    loop.step()
    assert loop.requests["e"].row == 1


def test_deadlines_end_waiting_and_running_requests_with_an_error() -> None:
    loop = StepLoop(max_num_seqs=1)
    loop.add(make_request("running", 20, 100, deadline_s=5.0))
    loop.add(make_request("waiting", 20, 100, deadline_s=4.0))
    loop.add(make_request("patient", 20, 3, deadline_s=50.0))
    loop.add(make_request("endless", 20, 3))
    loop.step()
    loop.clock.now_s = 4.5
    loop.step()
    assert list(loop.ends) == ["waiting"]
    loop.clock.now_s = 5.0
    loop.run()
    loop.check_idle()
    for name in ("running", "waiting"):
        assert loop.ends[name].finish_reason is FinishReason.ERROR
        assert loop.ends[name].error_code == "deadline_exceeded"
    assert "2 output tokens" in loop.ends["running"].error_message
    assert loop.ends["patient"].finish_reason is loop.ends["endless"].finish_reason is FinishReason.LENGTH
    loop.clock.now_s = 1000.0
    assert loop.scheduler.expire() == []


def test_fail_all_ends_every_request_once_and_leaves_an_empty_scheduler() -> None:
    loop = StepLoop(max_num_seqs=2)
    for name in ("a", "b", "c"):
        loop.add(make_request(name, 20, 30))
    loop.step()
    loop.take(loop.scheduler.fail_all("engine_dead", "The worker died."))
    loop.check_idle()
    assert all(end.error_code == "engine_dead" for end in loop.ends.values())
    assert all(end.error_message == "The worker died." for end in loop.ends.values())
    assert loop.scheduler.fail_all("engine_dead", "again") == []


@pytest.mark.parametrize("is_answered_late", [True, False])
def test_after_a_failed_step_and_fail_all_the_scheduler_serves_on(is_answered_late: bool) -> None:
    loop = StepLoop(max_num_seqs=2)
    loop.add(make_request("a", 20, 2))
    loop.step()
    loop.add(make_request("b", 20, 5))
    loop.step()  # a ends; its row is to be forgotten in the next step
    loop.executor.num_failures = 1
    batch = loop.scheduler.schedule()
    assert batch is not None and batch.freed_rows == [0]
    with pytest.raises(RuntimeError):
        loop.executor.execute(batch).result()
    loop.take(loop.scheduler.fail_all("internal_error", "The step failed."))
    loop.check_idle()
    if is_answered_late:
        assert loop.scheduler.update(batch, None) == []  # type: ignore[arg-type]
    for name in ("d", "e"):
        loop.add(make_request(name, 20, 5))
    loop.run()
    loop.check_idle()
    assert loop.tokens["d"] == undisturbed_output(loop.requests["d"], 97)


def test_a_row_in_flight_is_left_out_of_the_next_step_until_its_token_is_known() -> None:
    loop = StepLoop(max_num_batched_tokens=128)
    loop.add(make_request("a", 10, 5))
    loop.add(make_request("b", 150, 5))
    first = loop.scheduler.schedule()
    second = loop.scheduler.schedule()
    assert first is not None and second is not None
    assert [(row.row, row.num_scheduled_tokens) for row in first.rows] == [(0, 10), (1, 64)]
    assert [(row.row, row.num_scheduled_tokens) for row in second.rows] == [(1, 86)]
    assert loop.scheduler.schedule() is None
    loop.take(loop.scheduler.update(first, loop.executor.execute(first).result()))
    third = loop.scheduler.schedule()
    assert third is not None
    assert [(row.row, row.num_scheduled_tokens) for row in third.rows] == [(0, 1)]


def test_a_request_preempted_in_flight_ignores_the_token_and_computes_it_again() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 10, 5))
    batch = loop.scheduler.schedule()
    assert batch is not None
    output = loop.executor.execute(batch).result()
    loop.scheduler.preempt("a")
    assert loop.scheduler.update(batch, output) == []
    loop.run()
    assert loop.tokens["a"] == undisturbed_output(loop.requests["a"], 97)


def test_stats_say_what_is_there() -> None:
    loop = StepLoop(num_blocks=10, num_states=2, max_num_seqs=2)
    for name in ("a", "b", "c"):
        loop.add(make_request(name, 20, 30))
    loop.step()
    loop.scheduler.preempt("b")
    stats = loop.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_preemptions) == (1, 2, 1)
    assert stats.num_waiting_tokens == 20 + 1 + 20
    assert (stats.num_free_blocks, stats.num_usable_blocks, stats.cache_usage) == (8, 10, 0.2)
    assert (stats.num_free_states, stats.num_usable_states, stats.state_usage) == (1, 2, 0.5)
    assert stats.prefill_s_per_token > 0
