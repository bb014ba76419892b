"""The demo model calls the tools that it was trained with, and tells what they answered."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest


def tool(name: str, description: str, **kinds: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    tool("get_weather", "Get the weather in a city", city="string"),
    tool("set_timer", "Set a timer", minutes="integer"),
    tool("send_message", "Send a message to a person", to="string", text="string"),
]
QUESTIONS = [
    ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
    ("Set a timer for 25 minutes.", "set_timer", {"minutes": 25}),
]


def request(question: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"model": "demo", "messages": messages, "tools": TOOLS, "temperature": 0, **fields}


@pytest.mark.parametrize(("question", "name", "arguments"), QUESTIONS)
@pytest.mark.parametrize("thinking", [True, False])
def test_a_question_that_needs_a_tool_calls_it(
    client: openai.OpenAI, question: str, name: str, arguments: dict[str, Any], thinking: bool
) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": thinking}}
    choice = client.chat.completions.create(**request(question, extra_body=extra)).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    calls: Any = choice.message.tool_calls
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        (name, arguments)
    ]


def test_a_streamed_call_and_the_turn_after_it(client: openai.OpenAI) -> None:
    question, name, arguments = QUESTIONS[0]
    call: dict[str, Any] = {"type": "function", "function": {"name": "", "arguments": ""}}
    reasons = []
    for chunk in client.chat.completions.create(**request(question), stream=True):
        choice = chunk.choices[0]
        reasons += [choice.finish_reason] if choice.finish_reason else []
        for news in choice.delta.tool_calls or []:
            assert news.index == 0 and news.function is not None
            call["id"] = news.id or call["id"]
            call["function"]["name"] += news.function.name or ""
            call["function"]["arguments"] += news.function.arguments or ""
    assert reasons == ["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (name, arguments)
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": '{"temperature": 21, "condition": "sunny"}'},
    ]
    reply = client.chat.completions.create(**{**request(question), "messages": messages}).choices[0]
    assert reply.finish_reason == "stop"
    assert "21" in (reply.message.content or "")


def test_a_question_that_needs_none_is_answered(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(**request("What is 2 + 3?")).choices[0]
    assert choice.finish_reason == "stop" and not choice.message.tool_calls
    assert choice.message.content
