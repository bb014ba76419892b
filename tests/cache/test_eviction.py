"""Who goes first when there is no room."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.cache.eviction import EvictionQueue


@dataclass
class Item:
    name: str
    value: float
    base: float = 0.0
    version: int = 0


def queue_of(*items: Item) -> EvictionQueue[Item]:
    queue: EvictionQueue[Item] = EvictionQueue(lambda item: item.value)
    for item in items:
        queue.touch(item)
        queue.push(item)
    return queue


def order(queue: EvictionQueue[Item]) -> str:
    names = ""
    while (item := queue.pop(8)) is not None:
        names += item.name
    return names


def test_the_least_value_per_byte_goes_first() -> None:
    assert order(queue_of(Item("a", 3.0), Item("b", 1.0), Item("c", 2.0))) == "bca"


def test_of_equal_value_the_one_that_came_first_goes_first() -> None:
    assert order(queue_of(Item("a", 1.0), Item("b", 1.0), Item("c", 1.0))) == "abc"


def test_what_has_no_value_goes_before_all_others_and_ages_nobody() -> None:
    queue = queue_of(Item("a", 4.0), Item("b", 0.0))
    assert order(queue) == "ba"
    assert queue.age == 2.0


def test_age_lets_what_is_no_longer_used_go_before_newcomers_of_less_value() -> None:
    old, other = Item("o", 4.0), Item("x", 3.0)
    queue = queue_of(old, other)
    assert queue.pop(2) is other
    newcomer = Item("n", 2.0)
    queue.touch(newcomer)
    queue.push(newcomer)
    assert order(queue) == "on", "2 is less than 1.73 + 1.41"


def test_value_that_has_grown_since_counts() -> None:
    item, other = Item("a", 1.0), Item("b", 2.0)
    queue = queue_of(item, other)
    item.value = 3.0
    assert order(queue) == "ba"


def test_what_was_taken_out_does_not_come_back() -> None:
    item, other = Item("a", 1.0), Item("b", 2.0)
    queue = queue_of(item, other)
    queue.discard(item)
    assert order(queue) == "b"


def test_entries_left_over_from_changes_do_not_pile_up() -> None:
    item = Item("a", 1.0)
    queue = queue_of(item)
    for _ in range(10_000):
        queue.push(item)
        if queue.pop(1) is item:
            queue.push(item)
    assert len(queue._heap) < 200
