"""Whether an answer is right."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from qanat.evals.choices import Scoring, likeliest
from qanat.evals.extraction import cut_at, letter_of, normalised, number_of, program_of
from qanat.evals.item import EvalItem
from qanat.evals.replies import Reply
from qanat.evals.sandbox import run_test

Verdict = Literal["right", "wrong", "cut", "error"]
_FENCE = re.compile(r"^\s*```(?:json)?\s*$", re.MULTILINE)
_RESULT_MARKS = ("answer is", "Answer is", "答案是")


@dataclass(frozen=True)
class Judgement:
    """A verdict with its grounds.

    Attributes:
        verdict: right, wrong, or cut: the answer was not finished.
        extraction: what was found in the answer and compared; None where nothing was found.
        note: why a program failed.
        open_layers: see `ProgramRun`.
    """

    verdict: Verdict
    extraction: str | None
    note: str = ""
    open_layers: tuple[str, ...] = ()


def judge(
    item: EvalItem,
    reply: Reply,
    *,
    stops: tuple[str, ...] = (),
    is_chat: bool = True,
    scoring: Scoring = "answer",
    code_timeout_s: float = 10.0,
) -> Judgement:
    """The verdict on an answer.

    An answer that was cut by its length is never right, whatever stands at its end by then; one that a stop ended
    before that was not cut.

    Args:
        item: that was asked.
        reply: the answer.
        stops: texts that end an answer; applied here, to what is not thinking.
        is_chat: False for a completion, which goes on where the prompt ends.
        scoring: what a choice is judged by, where the answer has scores.
        code_timeout_s: for a program. Programs are run only for items whose check is code.
    """
    if reply.scores is not None:
        letter = likeliest(item, reply.scores, scoring)
        return Judgement("right" if is_right(item, letter) else "wrong", letter)
    text, is_stopped = cut_at(reply.text, stops)
    if reply.finish_reason == "length" and not is_stopped:
        return Judgement("cut", extract(item, reply, text) if item.check != "code" else None)
    if item.code is not None:
        program = program_of(text, item.code.prompt, item.code.entry_point, is_completion=not is_chat)
        run = run_test(program, item.code, code_timeout_s)
        return Judgement("right" if run.is_passed else "wrong", program, run.report, run.open_layers)
    found = extract(item, reply, text)
    return Judgement("right" if is_right(item, found) else "wrong", found)


def extract(item: EvalItem, reply: Reply, text: str) -> str | None:
    """What is compared with the right answers; None where the answer has nothing of the kind."""
    if item.check == "number":
        return number_of(text)
    if item.check == "choice":
        return letter_of(text, item.choices)
    if item.check == "tool_call":
        calls = [{"name": name, "arguments": _parsed(arguments)} for name, arguments in reply.tool_calls]
        return json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False) if calls else None
    if item.check == "json":
        bare = _FENCE.sub("", text).strip()
        return bare if _parsed(bare) is not None else None
    return text.strip() or None


def is_right(item: EvalItem, found: str | None) -> bool:
    """Whether what was found is one of the right answers."""
    if found is None:
        return False
    if item.check == "number":
        return any(found == number_of(answer) for answer in item.answers)
    if item.check in ("json", "tool_call"):
        return any(_same_json(found, answer) for answer in item.answers)
    if item.check == "regex":
        return any(re.search(answer, found) is not None for answer in item.answers)
    if item.check == "ends":
        return any(_ends(normalised(found), normalised(answer)) for answer in item.answers)
    return any(normalised(found) == normalised(answer) for answer in item.answers)


def _ends(found: str, answer: str) -> bool:
    """The whole answer, or what stands behind the words that announce a result."""
    return found == answer or any(
        found.endswith((f"{mark} {answer}", f"{mark}{answer}")) for mark in _RESULT_MARKS
    )


def _same_json(one: str, other: str) -> bool:
    left, right = _parsed(one), _parsed(other)
    return left is not None and left == right


def _parsed(text: str) -> Any:
    """The value; None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
