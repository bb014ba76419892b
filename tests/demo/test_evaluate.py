import json

import evaluate
import pytest
from demokit.item import Item
from demokit.mixture import held_out_items


def reply(item: Item) -> dict[str, object]:
    """What a server gives for a right answer."""
    if item.task != "tool_call":
        return {"role": "assistant", "content": item.answer}
    name = item.reasoning.removeprefix("call ")
    arguments = item.key.removeprefix("tool:" + name)
    return {
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def test_right_answers_count() -> None:
    for item in held_out_items(3, 40):
        assert evaluate.is_right(item, reply(item)), item


def test_wrong_answers_do_not() -> None:
    for item in held_out_items(3, 40):
        assert not evaluate.is_right(item, {"content": item.answer + "1"}), item
        assert not evaluate.is_right(item, {"content": ""})
        assert not evaluate.is_right(item, {"content": "HTTP 500: no"})


def test_wire_messages_carry_arguments_as_text() -> None:
    item = next(item for item in held_out_items(3, 5) if item.task == "tool_answer")
    sent = evaluate.wire_messages(item)
    call = next(message for message in sent if "tool_calls" in message)["tool_calls"][0]
    own = next(message for message in item.messages if "tool_calls" in message)["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == own["function"]["arguments"]
    assert isinstance(own["function"]["arguments"], dict)


@pytest.mark.parametrize(("content", "text"), [("a\n</think>\n\n5", "5"), (None, ""), (" 5 ", "5")])
def test_answer_text(content: str | None, text: str) -> None:
    assert evaluate.answer_text({"content": content}) == text
