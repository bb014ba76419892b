from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from qanat.scheduler.live_request import LiveRequest
from qanat.scheduler.waiting_queue import MAX_IDLE_OWNERS, WaitingQueue
from tests.support.step_loop import StepLoop, make_request


def live(
    number: int, *, priority: int = 0, arrival_s: float = 0.0, policy: str = "fcfs", owner: str = ""
) -> LiveRequest:
    request = make_request(f"r{number}", 10, priority=priority, arrival_time_s=arrival_s, owner=owner)
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


class PlainQueue:
    """The rule without any cleverness: looks at everything each time."""

    def __init__(self) -> None:
        self.fresh: list[LiveRequest] = []
        self.preempted: list[LiveRequest] = []
        self.served: Counter[str] = Counter()
        self.unspent: Counter[str] = Counter()
        self.at_turn = 0

    def push(self, item: LiveRequest, *, is_preempted: bool) -> None:
        if is_preempted:
            self.preempted.append(item)
            return
        name = item.request.owner
        if all(other.request.owner != name for other in self.fresh):
            kept = max(self.served[name] - self.unspent[name], self.at_turn)
            self.served[name] = max(self.served[name], kept)
            self.unspent[name] = self.served[name] - kept
        self.fresh.append(item)

    def charge(self, name: str, num_tokens: int) -> None:
        # Who was never seen begins where the turn is.
        paid_back = min(self.unspent[name], num_tokens)
        self.served[name] = self.served.get(name, self.at_turn) + num_tokens - paid_back
        self.unspent[name] -= paid_back

    def turn(self) -> LiveRequest | None:
        def key(item: LiveRequest) -> tuple[float, ...]:
            priority, arrival_s, number = item.rank
            if item in self.preempted:
                return (priority, 0, arrival_s, number)
            return (priority, 1, self.served[item.request.owner], arrival_s, number)

        return min(self.fresh + self.preempted, key=key, default=None)

    def discard(self, item: LiveRequest) -> None:
        for group in (self.fresh, self.preempted):
            if item in group:
                group.remove(item)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "preempt", "pop", "pop", "discard", "charge", "give back"]),
        st.integers(0, 3),
        st.integers(0, 20),
    ),
    max_size=60,
)


@given(OPERATIONS, st.sampled_from(["fcfs", "priority"]), st.booleans())
def test_s10_turns_are_those_of_the_plain_rule(
    operations: list[tuple[str, int, int]], policy: str, has_owners: bool
) -> None:
    queue, plain = WaitingQueue(), PlainQueue()
    items: list[LiveRequest] = []
    for word, small, large in operations:
        owner = f"owner-{small}" if has_owners else ""
        if word in ("push", "preempt"):
            fields = {"priority": large % 2, "arrival_s": float(large % 7)}
            items.append(live(len(items), policy=policy, owner=owner, **fields))  # type: ignore[arg-type]
            for each in (queue, plain):
                each.push(items[-1], is_preempted=word == "preempt")  # type: ignore[attr-defined]
        elif word == "pop":
            turn = plain.turn()
            if turn is not None and turn in plain.fresh:
                plain.at_turn = max(plain.at_turn, plain.served[turn.request.owner])
            if turn is not None:
                plain.discard(turn)
            assert queue.pop() is turn
        elif word == "discard" and items:
            for each in (queue, plain):
                each.discard(items[large % len(items)])  # type: ignore[attr-defined]
        elif word == "charge":
            queue.charge(owner, large)
            plain.charge(owner, large)
        elif word == "give back":
            queue.charge(owner, -large)
            plain.charge(owner, -large)
        assert queue.peek() is plain.turn()
        waiting = plain.fresh + plain.preempted
        assert (len(queue), queue.num_tokens) == (len(waiting), 10 * len(waiting))


@given(OPERATIONS)
def test_s10_one_owner_is_served_as_before_by_rank(operations: list[tuple[str, int, int]]) -> None:
    queue = WaitingQueue()
    waiting: list[tuple[tuple[float, ...], LiveRequest]] = []
    for number, (word, small, large) in enumerate(operations):
        if word in ("push", "preempt"):
            item = live(number, priority=small, arrival_s=float(large), policy="priority", owner="only")
            queue.push(item, is_preempted=word == "preempt")
            waiting.append(((small, word != "preempt", large, number), item))
        elif word == "pop":
            waiting.sort(key=lambda entry: entry[0])
            assert queue.pop() is (waiting.pop(0)[1] if waiting else None)
        elif word == "charge":
            queue.charge("only", large)


@given(
    st.lists(st.integers(1, 100), min_size=2, max_size=5),
    st.integers(20, 80),
)
def test_s10_owners_who_keep_waiting_differ_by_one_request_at_most(costs: list[int], num_turns: int) -> None:
    queue = WaitingQueue()
    for index, _ in enumerate(costs):
        for number in range(num_turns):
            queue.push(live(index * num_turns + number, owner=str(index)))
    served: Counter[str] = Counter({str(index): 0 for index, _ in enumerate(costs)})
    for _ in range(num_turns):
        turn = queue.pop()
        assert turn is not None
        name = turn.request.owner
        queue.charge(name, costs[int(name)])
        served[name] += costs[int(name)]
        assert max(served.values()) - min(served.values()) <= max(costs)


@given(st.integers(1, 50), st.integers(1, 20), st.booleans())
def test_s10_time_spent_idle_earns_nothing(num_alone: int, num_turns: int, was_here_before: bool) -> None:
    queue = WaitingQueue()
    if was_here_before:
        queue.push(live(2000, owner="back"))
        queue.pop()
        queue.charge("back", 10)
    for number in range(num_alone + num_turns):
        queue.push(live(number, owner="busy"))
    for _ in range(num_alone):
        queue.pop()
        queue.charge("busy", 10)
    for number in range(num_turns):
        queue.push(live(1000 + number, owner="back"))
    turns: Counter[str] = Counter()
    for _ in range(num_turns):
        turn = queue.pop()
        assert turn is not None
        turns[turn.request.owner] += 1
        queue.charge(turn.request.owner, 10)
    # The first turn may count what the other was charged for its last.
    assert abs(turns["back"] - turns["busy"]) <= 2


def test_accounts_of_idle_owners_are_not_kept_without_end() -> None:
    queue = WaitingQueue()
    for number in range(3 * MAX_IDLE_OWNERS):
        item = live(number, owner=f"passing-{number}")
        queue.push(item)
        queue.charge(item.request.owner, 10)
        queue.pop()
    assert len(queue._owners) <= MAX_IDLE_OWNERS + 1


def started(loop: StepLoop) -> list[str]:
    """Requests that have entered the batch, in order, with the ties of a step by number."""
    lives = [one for one in loop.scheduler._live.values() if one.first_scheduled_s is not None]
    return [one.request.request_id for one in sorted(lives, key=lambda one: one.first_scheduled_s or 0.0)]


def test_s10_a_flood_of_one_owner_does_not_hold_the_others_back() -> None:
    loop = StepLoop(max_num_seqs=1, max_waiting_requests=500)
    order: list[str] = []
    for number in range(100):
        loop.add(make_request(f"flood-{number}", 16, 2, owner="flood", arrival_time_s=0.0))
    for name in ("b", "c"):
        for number in range(3):
            loop.add(make_request(f"{name}-{number}", 16, 2, owner=name, arrival_time_s=1.0))
    while loop.scheduler.has_work:
        loop.step()
        order += [name for name in started(loop) if name not in order]
    assert len(order) == 106
    first = [name.split("-")[0] for name in order[:9]]
    assert Counter(first) == {"flood": 3, "b": 3, "c": 3}
    loop.check_idle()


def test_s10_what_is_computed_again_is_not_charged_again() -> None:
    loop = StepLoop(max_num_seqs=1)
    for name in ("a", "b"):
        for number in range(2):
            loop.add(make_request(f"{name}-{number}", 16, 4, owner=name))
    loop.step()
    before = loop.scheduler._waiting._owners["a"].num_served
    assert loop.scheduler.preempt("a-0")
    loop.step()
    assert loop.scheduler._waiting._owners["a"].num_served == before == 20
    loop.run()
    loop.check_idle()


def test_s10_output_counts_from_the_beginning_and_all_is_settled_when_nobody_waits() -> None:
    loop = StepLoop(max_num_seqs=2)
    loop.add(make_request("long", 16, 30, owner="long"))
    loop.add(make_request("short", 16, 2, owner="short"))
    while "short" not in loop.ends:
        loop.step()
    owners = loop.scheduler._waiting._owners
    assert {name: owner.num_served for name, owner in owners.items()} == {"long": 46, "short": 18}
    loop.run()
    assert not loop.scheduler._waiting._owners
