"""Calls that must come, calls held to their schemas, and tools beside a form, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.server.test_errors import refuse, still_serves
from tests.server.tools.replies import hermes_text, pieces_of, tool, xml_text
from tests.server.tools.test_chat_tools import GO, PATH, ask, both, whole
from tests.support.app_server import AppServer

CLOSE = "</think>"
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [tool("get_weather", WEATHER), tool("stop_all", {"type": "object", "properties": {}})]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
OSLO = [("get_weather", {"city": "Oslo", "days": 3})]


@pytest.fixture(params=["hermes", "xml"])
def written(request: pytest.FixtureRequest, server: AppServer, qwen3_server: AppServer) -> Any:
    """A server, and how its model writes calls."""
    return (qwen3_server, hermes_text) if request.param == "hermes" else (server, xml_text)


def strict(parameters: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "get_weather", "parameters": parameters, "strict": True}
    return {"type": "function", "function": function}


def parsed(calls: list[tuple[str, str]]) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in calls]


CHOICES: list[tuple[Any, str]] = [
    (None, "tool_calls"), ("auto", "tool_calls"), ("required", "tool_calls"), (NAMED, "stop"), ("none", "stop"),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}, "tool_calls"),
]  # fmt: skip


@pytest.mark.parametrize(("choice", "expected"), CHOICES, ids=str)
@pytest.mark.parametrize("is_enough", [True, False])
@pytest.mark.parametrize("thinks", [True, False])
def test_api_048_finish_reasons_of_every_choice(
    written: Any, choice: Any, expected: str, is_enough: bool, thinks: bool
) -> None:
    server, call = written
    thoughts = ["<think>", "why", CLOSE] if thinks else []
    server.say([*thoughts, *pieces_of(call("get_weather", {"city": "Oslo", "days": 3}), 4)])
    fields = {} if is_enough else {"max_tokens": len(thoughts) + 12}
    text, reason, calls = both(server, tools=TOOLS, tool_choice=choice, **({} if thinks else OFF), **fields)[
        0
    ]
    assert reason == (expected if is_enough else "length")
    if choice == "none":
        assert calls == [] and text
    elif is_enough:
        assert (text, parsed(calls)) == (None, OSLO)


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_model_that_would_rather_talk_calls(written: Any, choice: Any) -> None:
    server, call = written
    talk = [
        "It rains",
        " in Oslo.",
        *pieces_of(call("get_weather", {"city": "Oslo", "days": 3}), 3),
        " So it",
        " is.",
    ]
    server.say(talk)
    text, reason, calls = both(server, tools=TOOLS, tool_choice=choice, **OFF)[0]
    assert text is None and calls
    for name, arguments in parsed(calls):
        assert name == "get_weather"
        jsonschema.validate(arguments, WEATHER)
    assert reason == ("tool_calls" if choice == "required" else "stop")


def test_a_required_call_follows_the_schema(written: Any) -> None:
    server, call = written
    schema = {
        "type": "object",
        "properties": {"days": {"enum": [1, 7]}, "exact": {"type": "boolean"}},
        "required": ["days", "exact"],
        "additionalProperties": False,
    }
    server.say(pieces_of(call("get_weather", {"town": 5, "days": "many", "exact": "7 true"}), 1))
    _, _, calls = both(server, tools=[tool("get_weather", schema)], tool_choice=NAMED, **OFF)[0]
    assert [name for name, _ in calls] == ["get_weather"]
    jsonschema.validate(parsed(calls)[0][1], schema)


@pytest.mark.parametrize("is_parallel", [True, False])
def test_api_046_several_demanded_calls(written: Any, is_parallel: bool) -> None:
    server, call = written
    first, second = call("get_weather", {"city": "Oslo"}), call("get_weather", {"city": "Bergen"})
    server.say(pieces_of(first + "\n" + second, 6))
    _, reason, calls = both(
        server, tools=TOOLS, tool_choice="required", parallel_tool_calls=is_parallel, n=2, **OFF
    )[1]
    cities = ["Oslo", "Bergen"] if is_parallel else ["Oslo"]
    assert parsed(calls) == [("get_weather", {"city": city}) for city in cities]
    assert reason == "tool_calls"


def test_strict_functions_are_held_to_their_schemas_and_others_are_not(written: Any) -> None:
    server, call = written
    tools = [strict(WEATHER), tool("note", WEATHER)]
    for name in ("get_weather", "note"):
        server.say(["I look.", "\n\n", *pieces_of(call(name, {"city": "Oslo", "days": 2, "why": "x"}), 3)])
        text, _, calls = both(server, tools=tools, **OFF)[0]
        assert text is not None and text.startswith("I look.")
        arguments = parsed(calls)[0][1]
        if name == "note":
            assert set(arguments) == {"city", "days", "why"}
        else:
            jsonschema.validate(arguments, WEATHER)
    server.say(["Just", " text."])
    assert both(server, tools=tools, **OFF) == [("Just text.", "stop", [])]


def test_with_a_form_the_output_is_calls_or_an_answer(written: Any) -> None:
    server, call = written
    fields = {"tools": TOOLS, "response_format": {"type": "json_object"}, **OFF}
    server.say(["Well", ", ", '{"a"', ": 1", "}", " then"])
    assert both(server, **fields) == [('{"a": 1}', "stop", [])]
    server.say(pieces_of(call("get_weather", {"city": "Oslo", "days": 3}), 4))
    text, reason, calls = both(server, **fields)[0]
    assert (text, reason, parsed(calls)) == (None, "tool_calls", OSLO)
    text, reason, calls = both(server, **fields, tool_choice="required")[0]
    assert (text, reason, parsed(calls)) == (None, "tool_calls", OSLO)


@pytest.mark.parametrize(
    "fields", [{"tool_choice": "required"}, {"tools": [strict(WEATHER)]}], ids=["required", "strict"]
)
def test_a_call_that_ends_the_thoughts_is_held_to_its_schema(
    server: AppServer, qwen3_server: AppServer, fields: dict[str, Any]
) -> None:
    """Models begin calls without closing their thoughts."""
    for running, call, opening in ((server, xml_text, []), (qwen3_server, hermes_text, ["<think>"])):
        written = call("get_weather", {"city": "Oslo", "days": 3, "town": "x"})
        running.say([*opening, *pieces_of("I look it up " + written, 1)])
        asked = {"tools": TOOLS, **fields}
        _, reason, calls = both(running, **asked)[0]
        name, arguments = parsed(calls)[0]
        jsonschema.validate(arguments, WEATHER)
        assert (name, arguments["city"], reason) == ("get_weather", "Oslo", "tool_calls")
        message = ask(running, **asked)["choices"][0]["message"]
        assert message["reasoning"].startswith("I look it up")


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([strict({"type": "object", "properties": {"a": {"type": "objct"}}})], "required"),
        ([strict({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}})], "auto"),
        ([strict({"properties": "x"})], NAMED),
    ],
    ids=["type", "reference", "shape"],
)
def test_api_056_a_schema_that_cannot_be_followed_is_refused(
    server: AppServer, tools: Any, choice: Any
) -> None:
    error = refuse(server.post(PATH, {"messages": GO, "tools": tools, "tool_choice": choice}), param="tools")
    assert error["code"] == "invalid_structured_output"
    still_serves(server)


@pytest.mark.parametrize("reference", ["#/$defs/x", "#x", "https://example.com/x.json"])
@pytest.mark.parametrize("fields", [
    {"tool_choice": "required"}, {"tool_choice": NAMED}, {"response_format": {"type": "json_object"}},
], ids=["required", "named", "form"])  # fmt: skip
def test_api_056_a_reference_to_nowhere_is_refused_where_calls_follow_schemas_strict_or_not(
    written: Any, reference: str, fields: dict[str, Any]
) -> None:
    running, call = written
    schema = {"type": "object", "properties": {"city": {"$ref": reference}}, "required": ["city"]}
    tools = [tool("other"), tool("get_weather", schema)]
    error = refuse(running.post(PATH, {"messages": GO, "tools": tools, **OFF, **fields}), param="tools")
    assert error["code"] == "invalid_structured_output"
    assert "'get_weather'" in error["message"] and "$.properties.city.$ref" in error["message"]
    running.say(pieces_of(call("get_weather", {"city": "Oslo"}), 4))
    _, _, calls = both(running, tools=tools, **OFF)[0]
    assert parsed(calls) == [
        ("get_weather", {"city": "Oslo"})
    ]  # where nothing is enforced, nothing is refused


def test_calls_are_read_where_they_are_demanded_only(server: AppServer) -> None:
    from qanat.config.engine_config import ServerOptions
    from tests.support.app_server import serving

    with serving(ServerOptions(enable_auto_tool_choice=False)) as quiet:
        call = xml_text("get_weather", {"city": "Oslo", "days": 3})
        quiet.say(pieces_of(call, 9))
        assert whole(quiet, tools=TOOLS, **OFF) == [(call, "stop", [])]
        _, _, calls = both(quiet, tools=TOOLS, tool_choice=NAMED, **OFF)[0]
        assert parsed(calls) == OSLO
