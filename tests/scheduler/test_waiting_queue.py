from __future__ import annotations

from qanat.scheduler.live_request import LiveRequest
from qanat.scheduler.waiting_queue import WaitingQueue
from tests.support.step_loop import make_request


def live(number: int, *, priority: int = 0, arrival_s: float = 0.0, policy: str = "fcfs") -> LiveRequest:
    request = make_request(f"r{number}", 10, priority=priority, arrival_time_s=arrival_s)
    return LiveRequest(request, number, policy == "priority")


def order(queue: WaitingQueue) -> list[int]:
    numbers = []
    while (item := queue.pop()) is not None:
        numbers.append(item.number)
    return numbers


def test_fcfs_goes_by_arrival_and_then_by_order_of_add() -> None:
    queue = WaitingQueue()
    for number, arrival_s in [(0, 2.0), (1, 1.0), (2, 2.0), (3, 0.5)]:
        queue.push(live(number, arrival_s=arrival_s, priority=-number))
    assert order(queue) == [3, 1, 0, 2]


def test_priority_goes_by_lower_number_and_then_by_arrival() -> None:
    queue = WaitingQueue()
    for number, priority, arrival_s in [(0, 1, 0.0), (1, 0, 5.0), (2, 0, 4.0), (3, -1, 9.0)]:
        queue.push(live(number, priority=priority, arrival_s=arrival_s, policy="priority"))
    assert order(queue) == [3, 2, 1, 0]


def test_preempted_requests_go_to_the_front_of_their_priority() -> None:
    queue = WaitingQueue()
    queue.push(live(0, priority=1, policy="priority"))
    queue.push(live(1, priority=0, policy="priority"))
    queue.push(live(2, priority=1, arrival_s=3.0, policy="priority"), is_preempted=True)
    assert order(queue) == [1, 2, 0]


def test_waiting_tokens_are_counted_through_push_pop_and_discard() -> None:
    queue = WaitingQueue()
    items = [live(number) for number in range(3)]
    for item in items:
        queue.push(item)
    assert (len(queue), queue.num_tokens) == (3, 30)
    queue.discard(items[1])
    queue.discard(items[1])
    assert (len(queue), queue.num_tokens) == (2, 20)
    queue.pop()
    queue.discard(items[0])
    assert (len(queue), queue.num_tokens) == (1, 10)
