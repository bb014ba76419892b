from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.scheduler.lazy_heap import SLACK, LazyHeap


def test_items_come_in_order_of_keys_and_ties_in_order_of_numbers() -> None:
    heap: LazyHeap[str] = LazyHeap()
    heap.push((2.0,), 1, "late")
    heap.push((1.0,), 3, "second")
    heap.push((1.0,), 2, "first")
    assert [heap.pop(), heap.pop(), heap.pop(), heap.pop()] == ["first", "second", "late", None]


def test_discard_removes_from_anywhere_and_is_harmless_when_repeated() -> None:
    heap: LazyHeap[str] = LazyHeap()
    for number, item in enumerate("abc"):
        heap.push((float(number),), number, item)
    assert heap.discard(1)
    assert not heap.discard(1)
    assert not heap.discard(99)
    assert len(heap) == 2
    assert [heap.pop(), heap.pop(), heap.pop()] == ["a", "c", None]


def test_a_popped_item_may_come_back() -> None:
    heap: LazyHeap[str] = LazyHeap()
    heap.push((1.0,), 1, "a")
    assert heap.pop() == "a"
    heap.push((0.0,), 1, "a")
    assert (heap.peek(), len(heap)) == ("a", 1)


def test_memory_stays_in_proportion_to_what_is_live() -> None:
    heap: LazyHeap[int] = LazyHeap()
    heap.push((0.0,), 0, 0)  # stays at the top, so that nothing behind it is ever popped
    for number in range(1, 10_000):
        heap.push((float(number),), number, number)
        heap.discard(number)
    assert len(heap) == 1
    assert len(heap._heap) <= 2 + SLACK + 1


@given(
    st.lists(st.tuples(st.sampled_from(["push", "pop", "discard"]), st.integers(0, 5), st.integers(0, 40)))
)
def test_behaves_like_a_sorted_list(operations: list[tuple[str, int, int]]) -> None:
    heap: LazyHeap[int] = LazyHeap()
    model: list[tuple[float, int]] = []
    next_number = 0
    for operation, key, choice in operations:
        if operation == "push":
            heap.push((float(key),), next_number, next_number)
            model.append((float(key), next_number))
            next_number += 1
        elif operation == "pop":
            expected = min(model) if model else None
            assert heap.pop() == (expected[1] if expected else None)
            if expected:
                model.remove(expected)
        elif model:
            victim = model.pop(choice % len(model))
            assert heap.discard(victim[1])
        assert len(heap) == len(model)
        assert heap.peek() == (min(model)[1] if model else None)
