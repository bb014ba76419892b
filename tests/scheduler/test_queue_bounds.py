"""S8 and S11: what is refused at the queue's door, and what a refusal says about coming again."""

from __future__ import annotations

import pytest

from qanat.core.errors import QueueFullError
from qanat.scheduler.forecast import MAX_RETRY_S, whole_seconds
from tests.support.step_loop import StepLoop, make_request


def fill(
    loop: StepLoop, count: int, *, prefix: str = "r", num_prompt_tokens: int = 64, **fields: object
) -> None:
    for number in range(count):
        loop.add(make_request(f"{prefix}{number}", num_prompt_tokens, 4, **fields))


def refusal(loop: StepLoop, **fields: object) -> QueueFullError:
    with pytest.raises(QueueFullError) as caught:
        loop.add(make_request("late", 64, 4, **fields))
    assert "late" not in loop.requests
    return caught.value


def measured_loop(**limits: object) -> StepLoop:
    """One row, a hundred waiting requests, and paces measured on the first of them: 4 steps of 1 s each request."""
    loop = StepLoop(max_num_seqs=1, max_waiting_requests=100, **limits)
    fill(loop, 101)
    for _ in range(80):
        loop.step(1.0)
    assert loop.scheduler.num_waiting > 50
    return loop


def test_s11_a_full_queue_says_when_it_will_have_moved() -> None:
    loop = measured_loop()
    num_free_rows = 1 - loop.scheduler.num_running
    fill(loop, 100 - loop.scheduler.num_waiting + num_free_rows, prefix="more")
    error = refusal(loop)
    assert "100 requests are waiting" in error.message
    assert error.retry_after_s == pytest.approx(101 * 4, rel=0.1)
    loop.run()
    loop.check_idle()


def test_s11_time_without_requests_is_no_time_with_a_queue() -> None:
    loop = measured_loop()
    for name in [name for name in loop.requests if name not in loop.ends]:
        loop.abort(name)
    loop.clock.advance(100_000.0)
    fill(loop, 90, prefix="again")
    for _ in range(9):
        loop.step(1.0)
    num_free_rows = 1 - loop.scheduler.num_running
    fill(loop, 100 - loop.scheduler.num_waiting + num_free_rows, prefix="more")
    assert refusal(loop).retry_after_s == pytest.approx(101 * 4, rel=0.1)
    loop.run()
    loop.check_idle()


def test_s11_before_anything_is_measured_the_answer_is_one_second() -> None:
    loop = StepLoop(max_num_seqs=1, max_waiting_requests=3)
    fill(loop, 4)
    assert refusal(loop).retry_after_s == 1


def test_s11_who_would_wait_too_long_is_refused_with_the_numbers() -> None:
    loop = measured_loop(max_queue_wait_s=200.0)
    error = refusal(loop)
    num_waiting = loop.scheduler.num_waiting
    assert f"{num_waiting} requests with {64 * num_waiting} tokens are waiting" in error.message
    assert "the bound is 200 s (--max-queue-wait-s)" in error.message
    assert error.retry_after_s == pytest.approx((num_waiting + 1) * 4 - 200, rel=0.2)
    while 4.4 * (loop.scheduler.num_waiting + 1) > 200:
        loop.step(1.0)
    loop.add(make_request("late", 64, 4))
    loop.run()
    loop.check_idle()


def test_s11_no_wait_is_predicted_without_a_measured_pace() -> None:
    loop = StepLoop(max_num_seqs=1, max_waiting_requests=500, max_queue_wait_s=0.001)
    fill(loop, 300)
    loop.step(1.0)
    fill(loop, 10, prefix="more")


def test_s11_prompts_under_way_count_by_the_pace_of_prefill() -> None:
    loop = StepLoop(
        max_num_batched_tokens=64, num_blocks=200, max_queue_wait_s=10.0, max_decode_stall_s=100.0
    )
    loop.add(make_request("long", 2048, 4))
    for _ in range(20):
        loop.step(1.0)
    # 12 chunks of 64 tokens are left at a second each.
    error = refusal(loop)
    assert "would wait about 12 s" in error.message and error.retry_after_s == 2
    for _ in range(4):
        loop.step(1.0)
    loop.add(make_request("late", 64, 4))


def test_s11_an_owner_with_little_waits_only_for_its_turn() -> None:
    loop = StepLoop(max_num_seqs=1, max_waiting_requests=100, max_queue_wait_s=40.0)
    fill(loop, 100, owner="flood")
    for _ in range(60):
        loop.step(1.0)
    refusal(loop, owner="flood")
    loop.add(make_request("light", 64, 4, owner="light"))
    loop.run()
    loop.check_idle()


def test_s11_a_better_priority_waits_only_for_its_equals() -> None:
    loop = StepLoop(max_num_seqs=1, max_waiting_requests=100, max_queue_wait_s=40.0, policy="priority")
    fill(loop, 100, priority=3)
    for _ in range(60):
        loop.step(1.0)
    refusal(loop, priority=3)
    refusal(loop, priority=5)
    loop.add(make_request("urgent", 64, 4, priority=0))


def test_s8_a_queue_that_one_owner_has_filled_still_takes_the_share_of_others() -> None:
    loop = StepLoop(max_num_seqs=1, max_waiting_requests=12)
    fill(loop, 1, prefix="running")
    loop.step()
    fill(loop, 12, prefix="flood", owner="flood")
    refusal(loop, owner="flood")
    fill(loop, 6, prefix="b", owner="b")
    refusal(loop, owner="b")
    fill(loop, 4, prefix="c", owner="c")
    refusal(loop, owner="c")
    fill(loop, 2, prefix="d", owner="d")
    refusal(loop, owner="d")  # it has less than its share of 3, but twice the bound is the end
    assert loop.scheduler.num_waiting == 24
    loop.run()
    loop.check_idle()


def test_s8_the_same_holds_for_tokens() -> None:
    loop = StepLoop(max_num_seqs=1, max_waiting_tokens=640)
    fill(loop, 1, prefix="running")
    loop.step()
    fill(loop, 10, prefix="flood", owner="flood")
    refusal(loop, owner="flood")
    fill(loop, 5, prefix="b", owner="b")
    refusal(loop, owner="b")


@pytest.mark.parametrize(
    ("seconds", "told"), [(None, 1), (0.0, 1), (0.2, 1), (1.0, 1), (1.01, 2), (1e9, MAX_RETRY_S)]
)
def test_retry_after_is_whole_positive_and_bounded(seconds: float | None, told: int) -> None:
    assert whole_seconds(seconds) == told
