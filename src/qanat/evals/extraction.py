"""Finds the result in what a model wrote around it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from qanat.evals.item import LETTERS

THINK_START, THINK_END = "<think>", "</think>"
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s*/\s*\d+(?:\.\d+)?)?"
_NUMBERS = re.compile(rf"(?<![0-9A-Za-z_./]){_NUMBER}")
_SIGNS = {"\u2212": "-", "\u2012": "-", "\u2013": "-"}
_LEADS = re.compile(
    r"(?:####|(?:answer|result|choice|option)(?:\s+to\s[^.\n]{1,80}?)?\s*(?:is|:|=)|(?:答案|结果|选项?)\s*(?:应该|应)?(?:[是为选]|[::]|=)*)"
    r"[\s:*_$(\[（【]*",
    re.IGNORECASE,
)
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_TEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{(-?\d+)\}\s*\{(\d+)\}")
_FENCED = re.compile(r"^[ \t]*(`{3,})[ \t]*([\w+-]*)[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_TOP_LEVEL = re.compile(r"\n(?=(?:class|def|if|print|assert|import|from|async|@|#|```)\b|@|#|```)")
MAX_DIGITS = 4000
"""Longer runs of digits are no number that anyone asks for."""


def without_thinking(text: str) -> tuple[str, str]:
    """Thinking and answer of a text; a block that never ends leaves no answer.

    Servers without a parser leave the marks in the text; the first one is missing where the template wrote it. A text
    without marks stays as it is, as the indentation of a program's first line counts.
    """
    before, mark, after = text.rpartition(THINK_END)
    if mark:
        return before.replace(THINK_START, "").strip(), after.strip()
    before, mark, after = text.partition(THINK_START)
    if mark:
        return after.strip(), before.strip()
    return "", text


def cut_at(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text up to the first of the stops, and whether there was one."""
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def number_of(text: str) -> str | None:
    """The number that an answer gives: in a box, behind words such as "the answer is", else the last one.

    Returns:
        The number as a fraction in lowest terms or a whole number, so that equal ones are equal texts; None if there
        is none.
    """
    plain = _plain(text)
    for place in reversed(list(_BOXED.finditer(plain))):
        if (found := _numbers(place[1])) and (value := _value(found[-1])):
            return value
    for lead in reversed(list(_LEADS.finditer(plain))):
        rest = plain[lead.end() :].split("\n", 1)[0]
        first = _NUMBERS.search(rest)
        if first and not rest[: first.start()].strip(" $€£¥*=:~(\\[") and (value := _value(first[0])):
            return value
    found = _numbers(plain)
    return _value(found[-1]) if found else None


def letter_of(text: str, choices: Sequence[str]) -> str | None:
    """The letter of the choice that an answer takes, or None where it cannot be told."""
    letters = LETTERS[: len(choices)]
    one = rf"([{letters}{letters.lower()}])(?![A-Za-z0-9'])"
    capital = rf"([{letters}])(?![A-Za-z0-9'])"
    plain = unicodedata.normalize("NFKC", text).strip()
    for place in reversed(list(_BOXED.finditer(plain))):
        if found := re.match(rf"\s*(?:\\text\s*\{{)?[\s(]*{one}", place[1]):
            return found[1].upper()
    for lead in reversed(list(_LEADS.finditer(plain))):
        if found := re.match(
            rf"(?:(?:option|choice|letter)\s+)?[\s(*]*{capital}", plain[lead.end() :], re.IGNORECASE
        ):
            rest = plain[lead.end() + found.end() :]
            if found[1] != "a" or not re.match(r"\s+\w", rest):
                return found[1].upper()
        if same := _letter_of_text(plain[lead.end() :].split("\n", 1)[0], choices):
            return same
    if found := re.fullmatch(rf"[\s(\[*]*{one}[\s)\].:*。]*", plain):
        return found[1].upper()
    if found := re.match(rf"[(\[*]*{capital}(?:[)\].:,*、。]|\s*\n|\s*$)", plain):
        return found[1]
    last_line = plain.rsplit("\n", 1)[-1]
    if found := re.fullmatch(rf"[\s(\[*]*{capital}[\s)\].:*。]*", last_line):
        return found[1]
    if named := re.findall(rf"\b[Oo]ption \(?{capital}\)? is (?:the )?(?:correct|right|best)", plain):
        return str(named[-1])
    if bracketed := re.findall(rf"\({capital}\)", plain):
        return str(bracketed[-1])
    return _letter_of_text(plain, choices)


def _letter_of_text(text: str, choices: Sequence[str]) -> str | None:
    """The letter of the one choice that the text is."""
    same = [
        letter
        for letter, choice in zip(LETTERS, choices, strict=False)
        if _same(choice, text.strip("*\"' .。"))
    ]
    return same[0] if len(same) == 1 else None


def program_of(text: str, prompt: str, entry_point: str, *, is_completion: bool) -> str:
    """The program that an answer stands for.

    Args:
        text: the answer, thinking left out.
        prompt: beginning of the program, as it was asked.
        entry_point: function that it must define.
        is_completion: the answer goes on where the prompt ends, and may ramble on behind the function.
    """
    if is_completion:
        body: str = _TOP_LEVEL.split(text, maxsplit=1)[0]
        return prompt + body
    defines = re.compile(rf"^(?:async\s+)?def\s+{re.escape(entry_point)}\s*\(", re.MULTILINE)
    blocks: list[str] = [block[2] for block in _FENCED.findall(text)] or [text]
    for block in blocks:
        if defines.search(block):
            start = defines.search(prompt)
            return f"{prompt[: start.start()] if start else ''}\n{block}"
    return prompt + blocks[0]


def normalised(text: str) -> str:
    """For comparing texts: one form of each letter, white space as single blanks, no full stop at the end."""
    return " ".join(unicodedata.normalize("NFKC", text).split()).removesuffix(".").removesuffix("。").strip()


def _same(one: str, other: str) -> bool:
    return bool(normalised(one)) and normalised(one).casefold() == normalised(other).casefold()


def _plain(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text)
    for sign, minus in _SIGNS.items():
        plain = plain.replace(sign, minus)
    return _TEX_FRACTION.sub(r"\1/\2", plain.replace("{,}", ",").replace("\\!", ""))


def _numbers(text: str) -> list[str]:
    return [match[0] for match in _NUMBERS.finditer(text)]


def _value(text: str) -> str | None:
    if len(text) > MAX_DIGITS:
        return None
    top, _, bottom = text.replace(",", "").replace(" ", "").partition("/")
    try:
        value = Fraction(top) / Fraction(bottom or "1")
    except (ValueError, ZeroDivisionError):
        return None
    return str(value)
