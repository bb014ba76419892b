import json
from random import Random

import pytest
from demokit import mixture, ordering, records, text, tools
from demokit.item import is_held_out
from demokit.mixture import SCORED, draw, held_out_items, training_items
from hypothesis import given
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32)


def numbers_in(question: str) -> list[int]:
    return [int(part) for part in "".join(c if c.isdigit() else " " for c in question).split()]


@given(SEEDS)
def test_sorting_is_right(seed: int) -> None:
    item = ordering.sort(Random(seed))
    asked, answered = numbers_in(item.messages[0]["content"]), numbers_in(item.final)
    is_up = "<" in item.reasoning
    assert answered == sorted(asked, reverse=not is_up)
    before, after = item.reasoning.split(" < " if is_up else " > ")
    assert numbers_in(before) == asked and numbers_in(after) == answered


@given(SEEDS)
def test_comparing_is_right(seed: int) -> None:
    item = ordering.compare(Random(seed))
    a, b = numbers_in(item.messages[0]["content"])
    assert int(item.final) == (max(a, b) if item.reasoning.endswith("max") else min(a, b))


@given(SEEDS)
def test_text_changes_are_right(seed: int) -> None:
    item = text.change(Random(seed))
    kind = item.reasoning.split(":")[0]
    word = item.key.removeprefix("text:")
    assert item.final.lower() == text.CHANGES[kind](word).lower()
    if kind in ("upper", "lower"):
        assert item.final == getattr(word, kind)()
    if kind == "reverse":
        assert "".join(c for c in item.reasoning.split("; ")[1] if not c.isdigit()) == item.final


@given(SEEDS)
def test_json_holds_what_was_asked(seed: int) -> None:
    item = records.to_json(Random(seed))
    record = json.loads(item.answer)
    question = item.messages[0]["content"]
    assert 2 <= len(record) <= 4
    assert all(str(value) in question for value in record.values())


@given(SEEDS)
def test_calls_name_an_offered_tool_and_its_parameters(seed: int) -> None:
    item = tools.call(Random(seed))
    name = item.reasoning.removeprefix("call ")
    schema = next(tool["function"] for tool in item.tools if tool["function"]["name"] == name)
    arguments = json.loads(item.key.removeprefix("tool:" + name))
    assert list(arguments) == schema["parameters"]["required"]
    assert item.answer == tools.call_text(name, arguments)
    said = item.messages[0]["content"].lower()
    assert all(str(value).lower() in said for value in arguments.values())


def test_call_text() -> None:
    assert tools.call_text("set_timer", {"minutes": 5, "label": "tea"}) == (
        "<tool_call>\n<function=set_timer>\n<parameter=minutes>\n5\n</parameter>\n"
        "<parameter=label>\ntea\n</parameter>\n</function>\n</tool_call>"
    )


def test_training_never_shows_a_held_out_operand_set() -> None:
    items = training_items(seed=0, pool=3, count=4000)
    assert {item.task for item in items} == set(mixture.MAKERS)
    assert not [item.key for item in items if item.key not in ("talk", "prose") and is_held_out(item.key)]


def test_held_out_items_are_on_the_other_side_and_of_every_kind() -> None:
    items = list(held_out_items(seed=1, count=60))
    assert all(is_held_out(item.key) for item in items)
    for task in SCORED:
        kinds = {(item.is_thinking, item.language) for item in items if item.task == task}
        assert kinds == {(True, "en"), (True, "zh"), (False, "en"), (False, "zh")}, task


def test_commuted_operands_share_a_side() -> None:
    rng = Random(1)
    keys = {draw(rng, "add").key for _ in range(300)} | {draw(rng, "compare").key for _ in range(300)}
    for key in keys:
        a, b = (int(part) for part in key.split(":")[1:])
        assert a <= b


@pytest.mark.parametrize("seed", [0, 9])
def test_same_seed_same_items(seed: int) -> None:
    assert training_items(seed, 2, 200) == training_items(seed, 2, 200)
    assert training_items(seed, 2, 200) != training_items(seed, 3, 200)
    assert list(held_out_items(seed, 5)) == list(held_out_items(seed, 5))


def test_question_is_found_behind_system_text_and_earlier_turns() -> None:
    framed = [item for item in training_items(4, 0, 2000) if item.prompt_at > 1]
    assert framed
    for item in framed:
        assert item.messages[item.prompt_at]["role"] == "user"
        assert all(m["role"] in ("system", "user", "assistant") for m in item.messages[: item.prompt_at])


def test_unseen_wordings_are_not_trained_on() -> None:
    for trained, unseen in (
        (ordering.SORT_UP + ordering.SORT_DOWN, ordering.SORT_UP_UNSEEN + ordering.SORT_DOWN_UNSEEN),
        (ordering.LARGER + ordering.SMALLER, ordering.LARGER_UNSEEN + ordering.SMALLER_UNSEEN),
        (records.ASKS, records.UNSEEN),
        *((text.WORDINGS[kind], text.UNSEEN[kind]) for kind in text.WORDINGS),
        *((tools.ASKS[name], tools.UNSEEN[name]) for name in tools.ASKS),
    ):
        assert unseen and not set(trained) & set(unseen)
