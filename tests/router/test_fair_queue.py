"""The queue's order and bound, for any order of coming and going."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from qanat.router.fair_queue import FairQueue


class Item:
    def __init__(self, owner: str, priority: int = 0) -> None:
        self.owner = owner
        self.priority = priority


def filled(queue: FairQueue[Item], texts: str) -> list[Item]:
    items = [Item(letter) for letter in texts]
    for item in items:
        assert queue.add(item, item.priority, item.owner) is None
    return items


def taken(queue: FairQueue[Item]) -> str:
    text = ""
    while (item := queue.take()) is not None:
        text += item.owner
    return text


def test_owners_have_turns() -> None:
    queue: FairQueue[Item] = FairQueue(100)
    filled(queue, "aaaaabbc")
    assert taken(queue) == "abcabaaa"


def test_lower_priorities_go_first() -> None:
    queue: FairQueue[Item] = FairQueue(100)
    for owner, priority in (("a", 5), ("b", 0), ("c", -1), ("a", 0)):
        queue.add(Item(owner, priority), priority, owner)
    assert taken(queue) == "cbaa"


def test_a_full_queue_refuses_the_greedy_and_makes_room_for_others() -> None:
    queue: FairQueue[Item] = FairQueue(4)
    items = filled(queue, "aaaa")
    greedy = Item("a")
    assert queue.add(greedy, 0, "a") is greedy
    assert queue.add(Item("b"), 0, "b") is items[3]
    assert queue.add(Item("b"), 0, "b") is items[2]
    third = Item("b")
    assert queue.add(third, 0, "b") is third  # now both have two
    assert queue.add(Item("b"), -1, "b") is not None  # a better priority goes before
    assert len(queue) == 4


def test_a_queue_without_places_refuses_everybody() -> None:
    queue: FairQueue[Item] = FairQueue(0)
    item = Item("a")
    assert queue.add(item, 0, "a") is item and len(queue) == 0


steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "take", "drop"]), st.sampled_from("abcd"), st.integers(-1, 1)),
    max_size=80,
)


@given(steps, st.integers(0, 12))
def test_nothing_is_lost_and_the_order_is_right(script: list[tuple[str, str, int]], bound: int) -> None:
    queue: FairQueue[Item] = FairQueue(bound)
    inside: list[Item] = []
    for what, owner, priority in script:
        if what == "add":
            item = Item(owner, priority)
            victim = queue.add(item, priority, owner)
            if victim is not item:
                inside.append(item)
                if victim is not None:
                    assert victim.priority >= priority
                    inside.remove(victim)
        elif what == "take":
            item_or_none = queue.take()
            assert (item_or_none is None) == (not inside)
            if item_or_none is not None:
                assert item_or_none.priority == min(each.priority for each in inside)
                same = [
                    each
                    for each in inside
                    if (each.owner, each.priority) == (item_or_none.owner, item_or_none.priority)
                ]
                assert same[0] is item_or_none
                inside.remove(item_or_none)
        elif inside:
            gone = inside.pop(len(inside) // 2)
            assert queue.discard(gone)
            assert not queue.discard(gone)
        assert len(queue) == len(inside) <= bound
        for each in "abcd":
            assert queue.num_of(each) == sum(item.owner == each for item in inside)


@given(st.lists(st.sampled_from("abcd"), max_size=60))
def test_no_owner_is_passed_over_twice(owners: list[str]) -> None:
    queue: FairQueue[Item] = FairQueue(100)
    filled(queue, "".join(owners))
    since: dict[str, int] = defaultdict(int)
    waiting = list(owners)
    while (item := queue.take()) is not None:
        waiting.remove(item.owner)
        since[item.owner] = 0
        for other in set(waiting) - {item.owner}:
            since[other] += 1
            assert since[other] <= 3  # at most once each of the three others
