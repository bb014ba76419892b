"""One question with what a right answer is, whatever the file that it came from looks like."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Check = Literal["number", "choice", "exact", "ends", "json", "regex", "tool_call", "code"]
"""How an answer is judged; see docs/accuracy.md."""
CHECKS: tuple[str, ...] = get_args(Check)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class CodeTest:
    """How a program is tried.

    Attributes:
        prompt: beginning of the program; the answer may go on with it, or write it again.
        test: source that defines `check(candidate)`, which raises where the candidate is wrong.
        entry_point: name of the function that is handed to it.
    """

    prompt: str
    test: str
    entry_point: str


@dataclass(frozen=True, kw_only=True)
class EvalItem:
    """A question.

    Attributes:
        task: what it belongs to; scores are per task.
        item_id: its name within the task.
        check: how the answer is judged.
        answers: what is right; any of them. Empty for code.
        question: what is asked, without instructions, examples and choices.
        choices: of a multiple-choice question, in the order of their letters.
        solution: an answer as an example shows it, with the work.
        system: a system text that belongs to the item.
        messages: the whole conversation where the item brings one; the question is then not asked.
        tools: that are offered.
        is_thinking: asked with thinking on or off; None leaves it to the model.
        max_tokens: of the answer; None leaves it to the run.
        code: how to try the answer, where it is a program.
    """

    task: str
    item_id: str
    check: Check
    answers: tuple[str, ...] = ()
    question: str = ""
    choices: tuple[str, ...] = ()
    solution: str = ""
    system: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    is_thinking: bool | None = None
    max_tokens: int | None = None
    code: CodeTest | None = field(default=None, repr=False)

    @property
    def key(self) -> tuple[str, str]:
        """Name of the item in the whole run."""
        return self.task, self.item_id

    def digest(self) -> str:
        """Tells whether two items of one name ask the same; settings of the run are not in it."""
        told = [
            self.task, self.item_id, self.check, self.answers, self.question, self.choices, self.system,
            self.messages, self.tools, self.code and [self.code.prompt, self.code.test, self.code.entry_point],
        ]  # fmt: skip
        text = json.dumps(told, ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
