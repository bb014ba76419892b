from __future__ import annotations

import pytest

from qanat.core.errors import ConfigError
from qanat.evals.item import CodeTest, EvalItem
from qanat.evals.prompts import (
    Wording,
    chat_messages,
    choose_examples,
    completion_text,
    request_text,
    wire_messages,
)


def sums(count: int, task: str = "sums") -> list[EvalItem]:
    return [
        EvalItem(task=task, item_id=str(n), check="number", answers=(str(n),), question=f"{n} and 0?")
        for n in range(count)
    ]


def test_examples_are_fixed_by_the_seed_and_never_the_item_itself() -> None:
    items = sums(9)
    chosen = [choose_examples(items, None, 3, seed) for seed in (1, 1, 2)]
    of = [[[one.item_id for one in examples.of(item)] for item in items] for examples in chosen]
    assert of[0] == of[1] != of[2]
    assert all(
        len(shown) == 3 and item.item_id not in shown for item, shown in zip(items, of[0], strict=True)
    )
    assert len({tuple(shown) for shown in of[0]}) <= 4, "all share them but those that are shown themselves"


def test_examples_of_a_file_are_matched_by_task() -> None:
    items, source = sums(2) + sums(2, "other"), sums(4) + sums(5, "other") + sums(1, "third")
    examples = choose_examples(items, source, 4, 0)
    assert {one.task for one in examples.of(items[-1])} == {"other"}
    assert len(examples.of(items[0])) == 4, "an example of another file may have the number of the item"
    with pytest.raises(ConfigError, match="sums has 4 items"):
        choose_examples(items, source, 5, 0)
    with pytest.raises(ConfigError, match="of which one is asked"):
        choose_examples(sums(3), None, 3, 0)
    assert choose_examples(items, None, 0, 0).of(items[0]) == []


def test_a_chat_with_examples() -> None:
    item, example = sums(2)
    messages = chat_messages(item, [example], Wording(system="Be brief."))
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == "The answer is 1"
    assert messages[3]["content"].startswith("0 and 0?\nThink step by step")


def test_a_completion_with_examples() -> None:
    item, example = sums(2)
    text = completion_text(item, [example])
    assert text.startswith("Question: 1 and 0?\n")
    assert text.count("Answer:") == 2
    assert text.endswith("\nAnswer:"), "the model goes on with a blank"


def test_choices_have_letters_in_the_language_of_the_question() -> None:
    english = EvalItem(
        task="t", item_id="0", check="choice", answers=("B",), question="Q?", choices=("x", "y")
    )
    assert request_text(english).startswith("Q?\nA. x\nB. y\nChoose")
    chinese = EvalItem(
        task="t", item_id="0", check="choice", answers=("B",), question="问?", choices=("x", "y")
    )
    assert "答案是A" in request_text(chinese)
    assert completion_text(chinese).startswith("问题：")
    assert request_text(english, Wording(template="{choices} // {question}")) == "A. x\nB. y // Q?"


def test_programs_are_gone_on_with() -> None:
    item = EvalItem(
        task="t", item_id="0", check="code", question="def f():\n", code=CodeTest("def f():\n", "", "f")
    )
    assert completion_text(item) == "def f():\n"
    assert "```python\ndef f():\n```" in request_text(item)


def test_conversations_are_asked_as_they_stand() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    messages = ({"role": "user", "content": "do"}, {"role": "assistant", "content": "", "tool_calls": [call]})
    item = EvalItem(task="t", item_id="0", check="exact", answers=("x",), messages=messages)
    asked = chat_messages(item, sums(1), Wording(system="ignored"))
    assert asked == list(messages)
    sent = wire_messages(asked)
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"x": 1}'
    assert call["function"]["arguments"] == {"x": 1}, "the item stays as it was"
    with pytest.raises(ConfigError, match="--mode chat"):
        completion_text(item)
