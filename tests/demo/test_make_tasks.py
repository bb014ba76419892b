from __future__ import annotations

import make_tasks
from demokit.mixture import SCORED, held_out_items

from qanat.evals.judging import judge
from qanat.evals.replies import Reply
from qanat.evals.task_files import read_task_file
from tests.demo.test_evaluate import reply


def test_the_file_that_ships_is_what_the_command_makes() -> None:
    assert make_tasks.OUTPUT.read_text(encoding="utf-8") == make_tasks.text_of(11, 100)


def test_its_items_are_judged_as_the_demo_model_is_scored() -> None:
    items = read_task_file(make_tasks.OUTPUT).items
    assert {item.task for item in items} == set(SCORED)
    for item, made in zip(items, held_out_items(11, 100), strict=True):
        message = reply(made)
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        asked = [(call["name"], call["arguments"]) for call in calls]
        text = message["content"] or ""
        assert judge(item, Reply(text, tool_calls=tuple(asked))).verdict == "right", made
        spoilt = [(name, arguments.replace('": ', '": "1" if False else ')) for name, arguments in asked]
        assert judge(item, Reply(text + "1" if text else "", tool_calls=tuple(spoilt))).verdict == "wrong", (
            made
        )
