from __future__ import annotations

import json

import pytest

from qanat.evals.item import CodeTest, EvalItem
from qanat.evals.judging import judge
from qanat.evals.replies import MisfitError, Reply, read_reply


def item(check: str, *answers: str, **rest: object) -> EvalItem:
    return EvalItem(task="t", item_id="0", check=check, answers=answers, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "answer", "text", "verdict"),
    [
        ("number", "1,000", "It is 1000.0", "right"),
        ("number", "5", "It is 6", "wrong"),
        ("number", "5", "no idea", "wrong"),
        ("exact", "yes", " yes.", "right"),
        ("exact", "yes", "yes, it is", "wrong"),
        ("exact", "yes", "", "wrong"),
        ("ends", "85", "80+5=85, so the answer is 85", "right"),
        ("ends", "85", "所以答案是85", "right"),
        ("ends", "85", "85", "right"),
        ("ends", "85", "the answer is 185", "wrong"),
        ("json", '{"a": 1, "b": "x"}', '```json\n{"b": "x", "a": 1}\n```', "right"),
        ("json", '{"a": 1}', '{"a": "1"}', "wrong"),
        ("json", '{"a": 1}', "a: 1", "wrong"),
        ("regex", r"^\d+ C$", "24 C", "right"),
        ("regex", r"^\d+ C$", "24 F", "wrong"),
    ],
)
def test_verdicts(check: str, answer: str, text: str, verdict: str) -> None:
    assert judge(item(check, answer), Reply(text)).verdict == verdict


def test_choices() -> None:
    asked = item("choice", "B", choices=("x", "y"))
    assert judge(asked, Reply("The answer is B")).verdict == "right"
    assert judge(asked, Reply("Neither")).extraction is None


def test_calls() -> None:
    asked = item("tool_call", '{"name": "f", "arguments": {"x": 1, "y": "a"}}')
    right = ("f", '{"y": "a", "x": 1}')
    assert judge(asked, Reply("", tool_calls=(right,))).verdict == "right"
    for calls in ((), (("g", right[1]),), (("f", "{}"),), (("f", "{"),), (right, right)):
        assert judge(asked, Reply("", tool_calls=calls)).verdict == "wrong"


def test_a_cut_answer_is_never_right_but_one_that_a_stop_ended_is_whole() -> None:
    asked = item("number", "5")
    assert judge(asked, Reply("so 5", finish_reason="length")).verdict == "cut"
    reply = Reply("5\n\nQuestion: 6 and 7", finish_reason="length")
    assert judge(asked, reply, stops=("\n\nQuestion:",)).verdict == "right"


def test_programs_are_tried() -> None:
    code = CodeTest("def f(x):\n", "def check(candidate):\n    assert candidate(2) == 4", "f")
    asked = item("code", code=code)
    assert judge(asked, Reply("```python\ndef f(x):\n    return x + x\n```")).verdict == "right"
    wrong = judge(asked, Reply("    return x"), is_chat=False)
    assert (wrong.verdict, wrong.note) == ("wrong", "AssertionError")


def test_replies_of_both_endpoints() -> None:
    message = {"content": "42", "reasoning_content": "6*7", "tool_calls": None}
    alike = [{"token": "4", "logprob": -0.1}, {"token": "4", "logprob": -9.0}]
    chances = {"content": [{"token": "4", "top_logprobs": alike}] * 3}
    body = {
        "choices": [{"message": message, "finish_reason": "stop", "logprobs": chances}],
        "usage": {"x": 1},
    }
    reply = read_reply(json.dumps(body).encode(), is_chat=True, max_places=2)
    assert (reply.text, reply.thinking, reply.tokens, reply.chances) == (
        "42",
        "6*7",
        ("4", "4"),
        ({"4": -0.1},) * 2,
    )
    place = {"tokens": [" a", "b"], "top_logprobs": [{" a": -1.0}, None]}
    body = {"choices": [{"text": " ab", "finish_reason": "length", "logprobs": place}]}
    reply = read_reply(json.dumps(body).encode(), is_chat=False, max_places=8)
    assert (reply.text, reply.chances, reply.finish_reason) == (" ab", ({" a": -1.0}, {}), "length")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"choices": []}', b'{"error": "x"}', b'{"choices": [{"text": 1}]}']
)
def test_misshapen_replies(body: bytes) -> None:
    with pytest.raises(MisfitError):
        read_reply(body, is_chat=False)
    with pytest.raises(MisfitError):
        read_reply(body, is_chat=True)
