"""What is asked: examples, instructions and the question, as a conversation or as one text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from qanat.core.errors import ConfigError
from qanat.evals.choices import Scoring
from qanat.evals.item import LETTERS, EvalItem

CHINESE = re.compile(r"[\u3400-\u9fff]")
COMPLETION_STOPS = ("\nQuestion:", "\n问题：")
"""What a completion goes on with once it has answered: the next example."""
_CODE_REQUEST = "Complete this Python function. Answer with the whole function in one code block."


@dataclass(frozen=True)
class Wording:
    """How questions are put.

    Args:
        system: system text for items without one.
        template: text with {question} and {choices} in the place of ours.
        scoring: what choices are judged by, which says what form the answer shall have.
    """

    system: str = ""
    template: str | None = None
    scoring: Scoring = "answer"


OURS = Wording()


@dataclass(frozen=True)
class Examples:
    """Items that are shown, with their answers, before a question.

    Args:
        shown: of each task; one more than `count` where they come from the items that are asked.
        count: so many are shown.
    """

    shown: Mapping[str, Sequence[EvalItem]] = field(default_factory=dict)
    count: int = 0

    def of(self, item: EvalItem) -> list[EvalItem]:
        """What is shown before this item: never the item itself."""
        return [one for one in self.shown.get(item.task, ()) if one is not item][: self.count]


def choose_examples(
    items: Iterable[EvalItem], source: Iterable[EvalItem] | None, count: int, seed: int
) -> Examples:
    """The same examples for all items of a task, drawn by the seed, so that servers can reuse the prefix.

    Args:
        items: that are asked.
        source: of a file of its own; None draws them from `items`, each of which is then left out of its own prompt.
        count: examples in a prompt.
        seed: with the same one the same are drawn.

    Raises:
        ConfigError: a task has too few.
    """
    if not count:
        return Examples()
    is_own = source is None
    of_task: dict[str, list[EvalItem]] = {item.task: [] for item in items}
    for one in items if source is None else source:
        if one.task in of_task:
            of_task[one.task].append(one)
    wanted = count + 1 if is_own else count
    for task, found in of_task.items():
        if len(found) < wanted:
            raise ConfigError(
                f"--num-fewshot {count}: {task} has {len(found)} items to draw examples from"
                f"{', of which one is asked' if is_own else ''}; show fewer, or name a file with --fewshot-file.",
                param="--num-fewshot",
            )
    return Examples(
        {task: Random(f"{seed}-{task}").sample(found, wanted) for task, found in of_task.items()}, count
    )


def request_text(item: EvalItem, wording: Wording = OURS, *, is_chat: bool = True) -> str:
    """The question with its choices and what form the answer shall have; a completion's form is shown by examples."""
    listed = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, item.choices, strict=False))
    if wording.template is not None:
        return wording.template.replace("{question}", item.question).replace("{choices}", listed)
    if item.check == "choice":
        return _choice_text(item, listed, wording.scoring, is_chat=is_chat)
    if item.check == "number":
        hint = (
            "请逐步推理，并以“答案是<数字>”结尾。"
            if is_chinese(item)
            else 'Think step by step and end with the result, as in "The answer is 12".'
        )
        return f"{item.question}\n{hint}"
    if item.check == "code":
        return f"{_CODE_REQUEST}\n\n```python\n{item.question.rstrip()}\n```"
    return item.question


def _choice_text(item: EvalItem, listed: str, scoring: Scoring, *, is_chat: bool) -> str:
    if scoring == "letter" and not is_chat:
        return f"{item.question}\n{listed}"
    if scoring == "letter":
        hint = (
            "只回答正确选项的字母。" if is_chinese(item) else "Answer with the letter of the right one only."
        )
    elif scoring == "answer":
        hint = (
            "请选出正确选项，并以“答案是A”的形式作答。"
            if is_chinese(item)
            else 'Choose the right one and end with its letter, as in "The answer is A".'
        )
    else:
        return item.question
    return f"{item.question}\n{listed}\n{hint}"


def shown_answer(item: EvalItem, scoring: Scoring = "answer") -> str:
    """The answer of an example."""
    if scoring == "letter":
        return item.answers[0]
    if scoring != "answer":
        return item.choices[LETTERS.index(item.answers[0])]
    if item.check == "code":
        return f"```python\n{item.solution.rstrip()}\n```"
    if item.solution:
        return item.solution
    answer = item.answers[0]
    if item.check not in ("choice", "number"):
        return answer
    return f"答案是{answer}" if is_chinese(item) else f"The answer is {answer}"


def choice_texts(item: EvalItem) -> list[str]:
    """Each choice as it goes on behind a completion's prompt."""
    return [_gap(item) + choice for choice in item.choices]


def chat_messages(
    item: EvalItem, examples: Sequence[EvalItem] = (), wording: Wording = OURS
) -> list[dict[str, Any]]:
    """The conversation that ends with the question; an item with messages of its own is asked as it stands."""
    if item.messages:
        return [dict(message) for message in item.messages]
    messages = []
    if item.system or wording.system:
        messages.append({"role": "system", "content": item.system or wording.system})
    for one in examples:
        messages.append({"role": "user", "content": request_text(one, wording)})
        messages.append({"role": "assistant", "content": shown_answer(one, wording.scoring)})
    return [*messages, {"role": "user", "content": request_text(item, wording)}]


def completion_text(item: EvalItem, examples: Sequence[EvalItem] = (), wording: Wording = OURS) -> str:
    """One text that a base model goes on with.

    Raises:
        ConfigError: the item is a conversation or offers tools, which completions cannot express.
    """
    if item.messages or item.tools:
        raise ConfigError(
            f"the item {item.item_id} of {item.task} is a conversation; --mode chat asks it.", param="--mode"
        )
    if item.check == "code":  # the model goes on with the function itself
        shown = "".join(f"{one.solution.rstrip()}\n\n\n" for one in examples)
        return shown + item.question
    asked, answered = ("问题：", "答案：") if is_chinese(item) else ("Question: ", "Answer:")
    system, scoring = wording.system or item.system, wording.scoring
    gap = " " if scoring == "answer" else _gap(item)
    blocks = [system] if system else []
    for one in examples:
        shown = request_text(one, wording, is_chat=False)
        blocks.append(f"{asked}{shown}\n{answered}{gap}{shown_answer(one, scoring)}")
    return "\n\n".join([*blocks, f"{asked}{request_text(item, wording, is_chat=False)}\n{answered}"])


def is_chinese(item: EvalItem) -> bool:
    """Whether the question is; then so is what is said around it."""
    return bool(CHINESE.search(item.question))


def _gap(item: EvalItem) -> str:
    """What stands between a prompt and the answer that is scored."""
    return "" if is_chinese(item) else " "


def wire_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as the OpenAI API has them: arguments of calls are JSON text."""
    sent = []
    for message in messages:
        one = dict(message)
        if calls := one.get("tool_calls"):
            one["tool_calls"] = [_wire_call(call) for call in calls]
        sent.append(one)
    return sent


def _wire_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if not isinstance(function.get("arguments"), str):
        function["arguments"] = json.dumps(function.get("arguments", {}), ensure_ascii=False)
    return {**call, "function": function}
