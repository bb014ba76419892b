import re
from random import Random

import pytest
from demokit import arithmetic, numerals
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(0, 999)


def check_columns(work: str) -> list[int]:
    """Check every step of a scratchpad and return the digits, ones first."""
    steps = [step.rsplit("=", 1) for step in work.split(": ")[-1].split(",")]
    for left, right in steps:
        total = sum(int(term) for term in re.findall(r"[+-]?\d+", left))
        assert total == int(right), (left, right)
    return [int(right) for _, right in steps]


@given(NUMBERS, NUMBERS)
def test_sum_follows_from_its_columns(a: int, b: int) -> None:
    columns = check_columns(arithmetic.scratchpad(a, "+", b))
    digits = [value % 10 for value in columns[:-1]] + [columns[-1]]
    assert sum(digit * 10**place for place, digit in enumerate(digits)) == a + b


@given(NUMBERS, NUMBERS)
def test_difference_follows_from_its_columns(a: int, b: int) -> None:
    work = arithmetic.scratchpad(a, "-", b)
    columns = check_columns(work)
    assert all(0 <= value <= 9 for value in columns)
    assert sum(value * 10**place for place, value in enumerate(columns)) == abs(a - b)
    assert work.startswith(f"{a}-{b}: " if a >= b else f"{a}-{b}=-({b}-{a}): ")


def test_borrow_and_carry_are_written_out() -> None:
    assert arithmetic.scratchpad(184, "-", 99) == "184-99: 14-9=5,18-1-9=8,1-1=0"
    assert arithmetic.scratchpad(47, "+", 8) == "47+8: 7+8=15,4+1=5"


POOLS = (
    arithmetic.ADD_WORDINGS,
    arithmetic.ADD_STORIES,
    arithmetic.ADD_CHINESE,
    arithmetic.SUB_WORDINGS,
    arithmetic.SUB_STORIES,
    arithmetic.SUB_CHINESE,
    arithmetic.DIFFERENCE_WORDINGS,
)


@pytest.mark.parametrize("pool", POOLS)
def test_every_wording_names_both_operands(pool: tuple[str, ...]) -> None:
    assert all("{a}" in text and "{b}" in text for text in pool)


def test_unseen_wordings_are_not_among_the_trained_ones() -> None:
    trained = {
        *arithmetic.ADD_WORDINGS,
        *arithmetic.ADD_CHINESE,
        *arithmetic.SUB_WORDINGS,
        *arithmetic.SUB_CHINESE,
    }
    unseen = {
        *arithmetic.ADD_UNSEEN,
        *arithmetic.ADD_CHINESE_UNSEEN,
        *arithmetic.SUB_UNSEEN,
        *arithmetic.SUB_CHINESE_UNSEEN,
    }
    assert not trained & unseen


@given(st.integers())
def test_answers_are_right(seed: int) -> None:
    rng = Random(seed)
    for make, sign in ((arithmetic.add, 1), (arithmetic.sub, -1)):
        item = make(rng)
        a, b = (int(number) for number in re.match(r"(\d+)[+-](\d+)", item.reasoning).groups())
        assert item.final == str(a + sign * b)
        assert item.answer == item.final or item.answer.endswith(item.final)
        assert item.is_thinking == (item.answer == item.final)


def test_numerals() -> None:
    words = {0: "zero", 13: "thirteen", 40: "forty", 42: "forty-two", 100: "one hundred"}
    words |= {305: "three hundred and five", 999: "nine hundred and ninety-nine"}
    assert {n: numerals.english(n) for n in words} == words
    assert [numerals.chinese(n) for n in (0, 10, 11, 20, 99)] == ["零", "十", "十一", "二十", "九十九"]
    assert len({numerals.english(n) for n in range(1000)}) == 1000
