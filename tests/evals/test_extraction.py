from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.evals.extraction import (
    cut_at,
    letter_of,
    normalised,
    number_of,
    program_of,
    without_thinking,
)

FRAMES = (
    "{}",
    "The answer is {}.",
    "First 3, then 17 more. The answer is {}",
    "so 2 + 2 = 5, no.\n#### {}",
    "\\boxed{{{}}} and 9 others",
    "**Final answer:** ${}$\n\nThanks! Page 3.",
    "因为有5个苹果,所以答案是{}。",
    "结果为{}",
    "We get 4 twice, which makes {}",
)
CHOICES = ("a cat", "a dog", "a bird", "none of these")


@given(st.integers(-(10**9), 10**9), st.sampled_from(FRAMES), st.booleans())
def test_whole_numbers_are_found_in_any_frame(value: int, frame: str, has_commas: bool) -> None:
    assert number_of(frame.format(f"{value:,}" if has_commas else value)) == str(value)


@given(st.decimals(-(10**6), 10**6, places=3, allow_nan=False), st.sampled_from(FRAMES))
def test_decimals_are_equal_however_they_are_written(value, frame: str) -> None:
    assert number_of(frame.format(value)) == str(Fraction(value))
    assert number_of(frame.format(f"{value}00")) == str(Fraction(value))


@given(st.text())
def test_any_text_gives_a_number_or_none(text: str) -> None:
    found = number_of(text)
    assert found is None or str(Fraction(found)) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,2,3", "3"),
        ("2-3=5", "5"),
        ("It costs $1,234.50", "2469/2"),
        ("\\frac{3}{6}", "1/2"),
        ("3/0", None),
        ("答案：１２", "12"),
        ("value x7 or B12", None),
        ("The answer is unclear, perhaps 3", "3"),
        ("−5", "-5"),
        ("nothing", None),
        ("1" * 5000, None),
    ],
)
def test_numbers(text: str, value: str | None) -> None:
    assert number_of(text) == value


@given(
    st.sampled_from("ABCD"),
    st.sampled_from(
        (
            "{}", "{}.", "({})", "**{}**", "The answer is {}", "The answer is ({}).", "Answer: {}", "\\boxed{{{}}}",
            "A cat is no bird. The correct answer is {}.", "答案是{}", "所以选{}", "正确答案为：{}", "因此选项{}正确",
            "Let us think.\nB is wrong.\nAnswer: {}", "I weighed all.\n\n{}", "{}\nbecause it is so",
            "Answer: Option {}",
        )
    ),
)  # fmt: skip
def test_letters_are_found_in_any_frame(letter: str, frame: str) -> None:
    assert letter_of(frame.format(letter), CHOICES) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("A dog barks at a cat", None),
        ("The answer is a dog", "B"),
        ("the answer is **a dog**.", "B"),
        ("The answer is a wolf", None),
        ("a dog", "B"),
        ("None of these.", "D"),
        ("The answer is E", None),
        ("", None),
        ("b", "B"),
        ("The answer is a.", "A"),
        ("The answer is A because it purrs", "A"),
        ("The best choice is C", "C"),
        ("So option (B) is correct, not A", "B"),
    ],
)
def test_letters(text: str, letter: str | None) -> None:
    assert letter_of(text, CHOICES) == letter


@given(st.text(), st.integers(2, 26))
def test_any_text_gives_a_letter_of_a_choice_or_none(text: str, count: int) -> None:
    found = letter_of(text, [f"choice {number}" for number in range(count)])
    assert found is None or found in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:count]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>a\n\nb</think>\n\n42", ("a\n\nb", "42")),
        ("a</think>42", ("a", "42")),
        ("<think>never ends", ("never ends", "")),
        ("    return 1", ("", "    return 1")),
        ("<think></think>x", ("", "x")),
    ],
)
def test_thinking_is_taken_off(text: str, parts: tuple[str, str]) -> None:
    assert without_thinking(text) == parts


@given(st.text(), st.lists(st.text(max_size=3), max_size=3))
def test_a_cut_text_is_the_longest_beginning_without_a_stop(text: str, stops: list[str]) -> None:
    found, is_stopped = cut_at(text, stops)
    assert text.startswith(found)
    assert is_stopped == any(stop and stop in text for stop in stops)
    assert is_stopped or found == text
    if is_stopped:
        assert any(stop and text[len(found) :].startswith(stop) for stop in stops)


PROMPT = 'import math\n\ndef area(r):\n    """Of a circle."""\n'


@pytest.mark.parametrize(
    ("text", "is_completion"),
    [
        ("    return math.pi * r * r\n\ndef other():\n    pass", True),
        ("    return math.pi * r * r\n# Test\nprint(area(", True),
        ("```python\ndef area(r):\n    return math.pi * r * r\n```", False),
        (
            "Sure:\n```\nimport os\n```\nand\n```py\ndef area(r):\n    return math.pi * r * r\n```\nDone.",
            False,
        ),
        ("def area(r):\n    return math.pi * r * r", False),
        ("```python\n    return math.pi * r * r\n```", False),
    ],
)
def test_programs(text: str, is_completion: bool) -> None:
    space: dict[str, object] = {}
    exec(program_of(text, PROMPT, "area", is_completion=is_completion), space)
    assert round(space["area"](1), 4) == 3.1416  # type: ignore[operator]


def test_normalised_texts() -> None:
    assert normalised(" It  is\n24 degrees. ") == "It is 24 degrees"
    assert normalised("已发送。") == "已发送"
    assert normalised("１２") == "12"
