"""Sorting three or four numbers and comparing two."""

from random import Random

from . import wording
from .item import Item, with_work

SORT_UP = (
    "Sort in ascending order: {s}", "Sort these numbers from small to large: {s}", "Sort: {s}", "Sort {s}", "Sort the numbers {s}.", "Sort {s} in ascending order.",
    "Put these numbers in order: {s}", "Order these from smallest to largest: {s}", "Arrange {s} from smallest to largest.", "Sort this list: {s}",
    "Sort the list [{s}]", "Sort [{s}] ascending.", "Arrange in ascending order: {s}", "Order these numbers from low to high: {s}", "Sort these: {s}",
    "Write these numbers in increasing order: {s}", "Please put {s} in order.", "Give me these numbers from smallest to largest: {s}", "Numbers: {s}. Sort them.", "List {s} from low to high.", "Sort the following numbers: {s}",
)  # fmt: skip
SORT_DOWN = (
    "Sort in descending order: {s}", "Sort these numbers from large to small: {s}", "Sort {s} in descending order.", "Order these from largest to smallest: {s}",
    "Arrange {s} from largest to smallest.", "Sort [{s}] descending.", "Arrange in descending order: {s}", "Order these numbers from high to low: {s}",
    "Write these numbers in decreasing order: {s}", "Give me these numbers from largest to smallest: {s}", "Put {s} in descending order.", "List {s} from high to low.", "Sort this list from largest to smallest: {s}",
)  # fmt: skip
SORT_UP_CHINESE = (
    "从小到大排序:{s}",
    "把{s}从小到大排列",
    "把这些数从小到大排序:{s}",
    "排序:{s}",
    "升序排列:{s}",
    "请排序 {s}",
)
SORT_DOWN_CHINESE = ("从大到小排序:{s}", "把{s}从大到小排列", "把这些数从大到小排序:{s}", "降序排列:{s}")
SORT_UP_UNSEEN = (
    "Bring these numbers into ascending order: {s}",
    "Please list the numbers {s} from smallest to largest.",
)
SORT_DOWN_UNSEEN = (
    "Bring these numbers into descending order: {s}",
    "Please list the numbers {s} from largest to smallest.",
)
LARGER = (
    "Which is larger, {a} or {b}?", "Which number is bigger: {a} or {b}?", "Which is greater, {a} or {b}?", "What is larger, {a} or {b}?", "Is {a} or {b} larger?",
    "Which one is bigger, {a} or {b}?", "Compare {a} and {b}. Which is larger?", "Find the larger of {a} and {b}.", "What is the maximum of {a} and {b}?",
    "max({a}, {b})", "The larger of {a} and {b}?", "Which of {a} and {b} is greater?", "What is the bigger number, {a} or {b}?", "Tell me which is larger: {a} or {b}.",
    "{a} or {b}, which is larger?", "{a} or {b}: which one is bigger?", "Of {a} and {b}, which is bigger?", "Between {a} and {b}, which is larger?", "Of the numbers {a} and {b}, which is the bigger one?",
    "Which is the larger one, {a} or {b}?", "Name the larger number: {a} or {b}", "Pick the bigger number: {a}, {b}", "Tell me the larger number: {a}, {b}", "Give me the bigger of the two: {a} and {b}.",
    "The bigger one of {a} and {b} is?", "Two numbers: {a} and {b}. Which is larger?",
)  # fmt: skip
SMALLER = (
    "Which is smaller, {a} or {b}?", "Which number is smaller: {a} or {b}?", "Which is less, {a} or {b}?", "What is smaller, {a} or {b}?", "Is {a} or {b} smaller?",
    "Which one is smaller, {a} or {b}?", "Compare {a} and {b}. Which is smaller?", "Find the smaller of {a} and {b}.", "What is the minimum of {a} and {b}?",
    "min({a}, {b})", "The smaller of {a} and {b}?", "Which of {a} and {b} is less?", "Tell me which is smaller: {a} or {b}.",
    "{a} or {b}, which is smaller?", "{a} or {b}: which one is smaller?", "Of {a} and {b}, which is less?", "Between {a} and {b}, which is smaller?", "Of the numbers {a} and {b}, which is the smallest one?",
    "Which is the smaller one, {a} or {b}?", "Name the smaller number: {a} or {b}", "Pick the smaller number: {a}, {b}", "Tell me the smaller number: {a}, {b}", "Give me the smaller of the two: {a} and {b}.",
    "The smaller one of {a} and {b} is?", "Two numbers: {a} and {b}. Which is smaller?",
)  # fmt: skip
LARGER_CHINESE = ("{a}和{b}哪个更大?", "比较 {a} 和 {b},哪个大?", "{a}和{b}哪个大?", "{a}与{b}中较大的是?")
SMALLER_CHINESE = ("{a}和{b}哪个更小?", "比较 {a} 和 {b},哪个小?", "{a}和{b}哪个小?", "{a}与{b}中较小的是?")
LARGER_UNSEEN = (
    "Of the two numbers {a} and {b}, which is the larger one?",
    "Please tell me the bigger of {a} and {b}.",
)
SMALLER_UNSEEN = (
    "Of the two numbers {a} and {b}, which is the smaller one?",
    "Please tell me the smaller of {a} and {b}.",
)


def _padded(values: list[int]) -> str:
    return " ".join(f"{value:03d}" for value in values)


def _near(rng: Random) -> tuple[int, int]:
    """Two different numbers, often alike in their first digits or their length."""
    if rng.random() < 0.1:
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        return (a, b) if a != b else _near(rng)
    a = rng.randint(0, 99) if rng.random() < 0.4 else rng.randint(100, 999)
    draw = rng.random()
    if draw < 0.4:
        digits = list(str(a))
        digits[rng.randrange(len(digits))] = str(rng.randint(1, 9))
        b = int("".join(digits))
    elif draw < 0.55:
        b = min(999, max(0, a + rng.randint(-12, 12)))
    else:
        b = rng.randint(0, 99) if rng.random() < 0.4 else rng.randint(100, 999)
    return (a, b) if a != b else _near(rng)


def compare(rng: Random, is_unseen: bool = False) -> Item:
    """Which of two numbers is larger or smaller."""
    a, b = _near(rng)
    wants_larger, is_chinese = rng.random() < 0.5, rng.random() < 0.2
    if is_unseen:
        text = rng.choice(LARGER_UNSEEN if wants_larger else SMALLER_UNSEEN).format(a=a, b=b)
        is_chinese = False
    elif is_chinese:
        text = wording.request(
            rng, rng.choice(LARGER_CHINESE if wants_larger else SMALLER_CHINESE).format(a=a, b=b), True
        )
    else:
        text = rng.choice(LARGER if wants_larger else SMALLER).format(a=a, b=b)
        text = wording.any_case(rng, wording.request(rng, text))
    left, right = f"{a:03d}", f"{b:03d}"
    place = next(i for i in range(3) if left[i] != right[i])
    seen = ",".join(
        x + ("=" if x == y else "<" if x < y else ">") + y
        for x, y in zip(left[: place + 1], right, strict=False)
    )
    result = str(max(a, b) if wants_larger else min(a, b))
    work = f"{left} {right}: {seen}, {'max' if wants_larger else 'min'}"
    is_thinking = rng.random() < 0.6
    return Item(
        task="compare",
        key=f"compare:{min(a, b)}:{max(a, b)}",
        messages=[{"role": "user", "content": text}],
        answer=result if is_thinking else with_work(work, result, is_chinese),
        reasoning=work,
        is_thinking=is_thinking,
        final=result,
        language="zh" if is_chinese else "en",
    )


def sort(rng: Random, is_unseen: bool = False) -> Item:
    """Three or four different numbers in order."""
    count = rng.choice((3, 3, 4))
    draw = rng.random()
    top = 100 if draw < 0.4 else 1000
    if draw < 0.15:
        top = rng.choice((10, 10, 20, 30))
    values = rng.sample(range(1, top), count)
    if draw > 0.8:
        first = rng.randint(1, 8) * 100
        values = rng.sample(range(first, first + 150), count)
    is_up, is_chinese = rng.random() < 0.6, rng.random() < 0.2
    listed = rng.choice((", ", " ", ",", ", ")).join(map(str, values))
    if count == 3 and not is_chinese and rng.random() < 0.15:
        listed = f"{values[0]}, {values[1]} and {values[2]}"
    if is_unseen:
        text = rng.choice(SORT_UP_UNSEEN if is_up else SORT_DOWN_UNSEEN).format(s=listed)
        is_chinese = False
    elif is_chinese:
        text = wording.request(
            rng, rng.choice(SORT_UP_CHINESE if is_up else SORT_DOWN_CHINESE).format(s=listed), True
        )
    else:
        text = wording.any_case(
            rng, wording.request(rng, rng.choice(SORT_UP if is_up else SORT_DOWN).format(s=listed))
        )
    ordered = sorted(values, reverse=not is_up)
    result = ", ".join(map(str, ordered))
    work = f"{_padded(values)} {'<' if is_up else '>'} {_padded(ordered)}"
    is_thinking = rng.random() < 0.65
    return Item(
        task="sort",
        key="sort:" + ":".join(map(str, sorted(values))),
        messages=[{"role": "user", "content": text}],
        answer=result if is_thinking else with_work(work, result, is_chinese),
        reasoning=work,
        is_thinking=is_thinking,
        final=result,
        language="zh" if is_chinese else "en",
    )
