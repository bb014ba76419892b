"""How engines say that they fail: in the words of different releases, and by ending requests that have not ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qanat.router.chunks import is_engine_gone
from qanat.router.resume_text import MARK
from tests.router.routing import COMPLETIONS, routed, run
from tests.router.scripted_engine import DONE, Said, ScriptedEngine, scripted, text

BODY = {"model": "m", "prompt": "p", "max_tokens": 3}


def failing(*events: Any) -> Any:
    """Says the events to the first request, and answers the next one."""
    left = [[*events, DONE]]

    def answer(fields: Any) -> Said:
        return Said(left.pop() if left else [text(" b"), text(" c", "stop"), DONE])

    return answer


async def streamed(answer: Any, kind: str = "vllm") -> tuple[bytes, ScriptedEngine]:
    engine = ScriptedEngine(answer, owner=kind)
    async with scripted(engine), routed(f"{engine.url},kind={kind}") as router:
        return await router.stream(COMPLETIONS, BODY), engine


@pytest.mark.parametrize(
    "last",
    [
        {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}},
        {"error": {"message": "EngineCore encountered an issue", "code": "500"}},
        {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError"}},
        {"error": "dead"},
        {"object": "error", "message": "EngineCore died", "type": "InternalServerError", "code": 500},
        text("", "abort"),
        text(" more", "abort"),
    ],
    ids=["number", "text", "type alone", "no object", "old form", "aborted", "aborted with text"],
)
def test_an_engine_that_says_it_fails_is_followed_by_another(last: dict[str, Any]) -> None:
    stream, engine = run(streamed(failing(text(" a"), last)))
    assert len(engine.asked) == 2 and stream.count(MARK) == 1
    assert stream.endswith(DONE) and stream.count(DONE) == 1
    assert b"error" not in stream and b"abort" not in stream
    more = " more" if last.get("choices") and last["choices"][0]["text"] else ""
    assert engine.asked[1]["prompt"] == f"p a{more}"


@pytest.mark.parametrize("kind", ["vllm", "qanat"])
@pytest.mark.parametrize(
    "last",
    [
        {"error": {"message": "too long", "type": "BadRequestError", "code": "400"}},
        {"error": {"message": "too slow", "type": "server_error", "code": "deadline_exceeded"}},
        {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400},
    ],
    ids=["text", "name", "old form"],
)
def test_an_error_of_the_request_is_passed_on_and_ends_it(last: dict[str, Any], kind: str) -> None:
    stream, engine = run(streamed(failing(text(" a", token_ids=[1]), last), kind))
    assert len(engine.asked) == 1 and b"too " in stream


def test_a_whole_answer_that_an_engine_cut_short_is_computed_elsewhere() -> None:
    whole = text(" a", "abort")

    def answer(fields: Any) -> Said:
        first, whole["choices"] = whole["choices"], text(" b c", "stop")["choices"]
        return Said([json.dumps({**whole, "choices": first}).encode()], content_type="application/json")

    async def look() -> None:
        engine = ScriptedEngine(answer)
        async with scripted(engine), routed(f"{engine.url},kind=vllm") as router:
            response = await router.http.post(COMPLETIONS, json=BODY)
            assert response.json()["choices"][0]["text"] == " b c" and len(engine.asked) == 2

    run(look())


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (None, True),
        ({}, False),
        ({"code": True}, False),
        ({"code": "engine_dead"}, True),
        ({"code": "five"}, False),
        ({"code": "５００"}, False),
        ({"code": [500]}, False),
        ({"type": 5}, False),
    ],
)
def test_any_error_is_told_apart_without_a_fault(error: Any, is_gone: bool) -> None:
    assert is_engine_gone(error) is is_gone
