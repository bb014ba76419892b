"""The demo model, drawing tokens at random, held to forms and resumed: the whole road with real weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support.server_process import ServerProcess

CHAT = "/v1/chat/completions"
ASKED = {
    "messages": [{"role": "user", "content": "What is 17 + 25?"}],
    "temperature": 1,
    "seed": 5,
    "max_tokens": 60,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["sum", "product"]},
    },
    "required": ["answer", "kind"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "result", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}


@pytest.fixture(scope="module")
def open_server(demo_model: Path) -> Iterator[httpx.Client]:
    with ServerProcess([str(demo_model), "--allow-resume", "--max-model-len", "1024"]) as server:
        with httpx.Client(base_url=server.base_url, timeout=60) as client:
            yield client


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post(CHAT, json={**ASKED, **fields})
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


@pytest.mark.parametrize(
    "fields", [{}, {"response_format": FORM}, {"tools": [TOOL], "tool_choice": "required"}], ids=str
)
def test_an_answer_goes_on_with_the_same_tokens(open_server: httpx.Client, fields: dict[str, Any]) -> None:
    whole = ask(open_server, return_token_ids=True, **fields)
    ids = whole["token_ids"]
    assert len(ids) > 10
    cuts = range(0, len(ids), max(1, len(ids) // 8))

    def resume(cut: int) -> dict[str, Any]:
        return ask(open_server, return_token_ids=True, resume={"output_token_ids": [ids[:cut]]}, **fields)

    # All together: the model computes in bfloat16, and neither the cut nor the company may change a bit of it.
    with ThreadPoolExecutor(len(cuts)) as pool:
        answers = list(pool.map(resume, cuts))
    for cut, resumed in zip(cuts, answers, strict=True):
        for call in [*resumed["message"].get("tool_calls", []), *whole["message"].get("tool_calls", [])]:
            call["id"] = ""
        assert resumed == whole, cut


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("thinking", [True, False])
def test_answers_have_their_form(open_server: httpx.Client, seed: int, thinking: bool) -> None:
    fields = {"seed": seed, "max_tokens": 400, "chat_template_kwargs": {"enable_thinking": thinking}}
    choice = ask(open_server, response_format=FORM, **fields)
    if choice["finish_reason"] == "stop":
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    assert thinking or choice["finish_reason"] == "stop"  # without thoughts this form has an end
    choice = ask(open_server, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, **fields)
    if choice["finish_reason"] == "tool_calls":
        (call,) = choice["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)
    assert thinking or choice["finish_reason"] == "tool_calls"
