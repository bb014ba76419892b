"""Items out of rows of the common forms: GSM8K, multiple choice, HumanEval, and a form of our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from qanat.core.errors import ConfigError
from qanat.evals.item import CHECKS, LETTERS, Check, CodeTest, EvalItem

Row = Mapping[str, Any]
"""A record of the file; names of columns in lower case."""
MARK = "####"
"""Stands before the result in an answer of GSM8K."""
CUSTOM_KEYS = frozenset(
    "id task question answer check choices solution system messages tools thinking max_tokens".split()
)


def gsm8k(row: Row, task: str, number: int) -> EvalItem:
    """`question`, and an `answer` that shows the work and ends with #### and the result."""
    work, mark, result = _text(row, "answer").rpartition(MARK)
    if not mark or not result.strip():
        raise ValueError(f'"answer" has no {MARK} with the result behind it')
    result = result.strip()
    return EvalItem(
        task=task,
        item_id=str(row.get("id", number)),
        check="number",
        answers=(result,),
        question=_text(row, "question"),
        solution=f"{work.strip()}\nThe answer is {result}.",
    )


def choice(row: Row, task: str, number: int) -> EvalItem:
    """`question`, `a`, `b`... or `choices`, and `answer` as a letter, a number from 0, or the text of a choice."""
    if "choices" in row:
        choices = row["choices"]
        if isinstance(choices, Mapping):  # as ARC has them
            choices = choices.get("text")
        if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
            raise ValueError('"choices" is no list of texts')
    else:
        choices = []
        for letter in LETTERS:
            if row.get(letter.lower()) in (None, ""):
                break
            choices.append(str(row[letter.lower()]))
    if not 2 <= len(choices) <= len(LETTERS):
        raise ValueError(f"there are {len(choices)} choices; 2 to {len(LETTERS)} can have letters")
    letter = _letter(row.get("answer", row.get("answerkey")), choices)
    return EvalItem(
        task=str(row.get("task", row.get("subject", task))),
        item_id=str(row.get("id", number)),
        check="choice",
        answers=(letter,),
        question=_text(row, "question"),
        choices=tuple(choices),
        solution=str(row.get("solution") or ""),
    )


def humaneval(row: Row, task: str, number: int) -> EvalItem:
    """`prompt`, `test`, `entry_point`, and `canonical_solution` for examples."""
    code = CodeTest(_text(row, "prompt"), _text(row, "test"), _text(row, "entry_point"))
    if not code.entry_point.isidentifier():
        raise ValueError(f'"entry_point" {code.entry_point!r} is no name of a function')
    return EvalItem(
        task=task,
        item_id=str(row.get("task_id", number)),
        check="code",
        question=code.prompt,
        solution=code.prompt + str(row.get("canonical_solution", "")),
        code=code,
    )


def custom(row: Row, task: str, number: int) -> EvalItem:
    """The form of docs/accuracy.md."""
    unknown = sorted(row.keys() - CUSTOM_KEYS)
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: not among the keys {', '.join(sorted(CUSTOM_KEYS))}")
    check = str(row.get("check", "choice" if "choices" in row else "exact"))
    if check not in CHECKS or check == "code":
        raise ValueError(f'"check" {check!r} is not one of {", ".join(CHECKS[:-1])}')
    if check == "choice":
        known = choice(row, task, number)
        choices, answers = known.choices, known.answers
    else:
        choices, answers = (), _answers(row.get("answer"))
    messages, thinking, max_tokens = row.get("messages", []), row.get("thinking"), row.get("max_tokens")
    tools = row.get("tools", [])
    for name, value in (("messages", messages), ("tools", tools)):
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise ValueError(f'"{name}" is no list of objects')
    if not messages:
        _text(row, "question")
    if thinking is not None and not isinstance(thinking, bool):
        raise ValueError('"thinking" is neither true nor false')
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
        raise ValueError('"max_tokens" is no number of tokens')
    return EvalItem(
        task=str(row.get("task", task)),
        item_id=str(row.get("id", number)),
        check=cast(Check, check),
        answers=answers,
        question=str(row.get("question", "")),
        choices=choices,
        solution=str(row.get("solution", "")),
        system=str(row.get("system", "")),
        messages=tuple(messages),
        tools=tuple(tools),
        is_thinking=thinking,
        max_tokens=max_tokens,
    )


FORMATS: dict[str, Callable[[Row, str, int], EvalItem]] = {
    "gsm8k": gsm8k,
    "choice": choice,
    "humaneval": humaneval,
    "custom": custom,
}
"""By the name that --format takes. Each raises ValueError where a row is not of the form."""


def recognise(row: Row) -> str:
    """The form of a file by its first row.

    Raises:
        ConfigError: it is of none of them.
    """
    if {"prompt", "test", "entry_point"} <= row.keys():
        return "humaneval"
    if "check" in row or "messages" in row:
        return "custom"
    if "question" in row and ("choices" in row or {"a", "b"} <= row.keys()):
        return "choice"
    if "question" in row and MARK in str(row.get("answer", "")):
        return "gsm8k"
    if {"question", "answer"} <= row.keys():
        return "custom"
    raise ConfigError(
        f"the columns {', '.join(map(str, row))} belong to no known form; --format names one of "
        f"{', '.join(FORMATS)}, and docs/accuracy.md shows what each looks like.",
        param="--format",
    )


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f'"{name}" is missing' if value in (None, "") else f'"{name}" is no text')
    return value


def _answers(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if value in (None, "") or not values:
        raise ValueError('"answer" is missing')
    return tuple(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values)


def _letter(value: Any, choices: list[str]) -> str:
    """The letter of the right choice."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
        return LETTERS[value]
    if isinstance(value, str):
        text = value.strip()
        if len(text) == 1 and text.upper() in LETTERS[: len(choices)]:
            return text.upper()
        if value in choices:
            return LETTERS[choices.index(value)]
        if text.isascii() and text.isdigit() and int(text) < len(choices):
            return LETTERS[int(text)]
    if value in (None, ""):
        raise ValueError(
            '"answer" is missing; test files of C-Eval are published without answers, val files with'
        )
    raise ValueError(f'"answer" {value!r} is none of the {len(choices)} choices')
