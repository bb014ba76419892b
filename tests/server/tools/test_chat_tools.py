"""Tool calls over HTTP; names of tests carry the trial cases that they cover."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from qanat.config.engine_config import ServerOptions
from tests.server.tools.replies import hermes_text, pieces_of, tool, xml_text
from tests.support.app_server import AppServer, serving

PATH = "/v1/chat/completions"
GO = [{"role": "user", "content": "go"}]
CLOSE = "</think>"
TOOLS = [tool("a"), tool("b"), tool("c")]
Calls = list[tuple[str, str]]


@pytest.fixture(scope="module")
def hermes_server() -> Iterator[AppServer]:
    with serving(model_family="qwen3") as running:
        yield running
        running.wait_until_idle()


def ask(server: AppServer, **fields: Any) -> dict[str, Any]:
    response = server.post(PATH, {"model": "scripted", "messages": GO, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def whole(server: AppServer, **fields: Any) -> list[tuple[str | None, str, Calls]]:
    """Text, finish reason and calls of each choice of an answer in one piece."""
    choices = []
    for choice in ask(server, **fields)["choices"]:
        message = choice["message"]
        assert all(call["type"] == "function" for call in message.get("tool_calls", []))
        calls = [call["function"] for call in message.get("tool_calls", [])]
        pairs = [(function["name"], function["arguments"]) for function in calls]
        choices.append((message["content"], choice["finish_reason"], pairs))
    return choices


def streamed(server: AppServer, **fields: Any) -> list[tuple[str | None, str, Calls]]:
    """The same of a stream, merged by choice and index as clients do."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    ids: list[str] = []
    has_blank = False
    for chunk in server.stream(PATH, {"model": "scripted", "messages": GO, **fields}):
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice["delta"]
            texts[index] = texts.get(index, "") + delta.get("content", "")
            has_blank |= "content" in delta and not (delta.get("role") or delta["content"].strip())
            for news in delta.get("tool_calls", []):
                known = calls.setdefault(index, {})
                if news["index"] not in known:
                    assert set(news) == {"index", "id", "type", "function"} and news["type"] == "function"
                    assert news["function"] == {"name": news["function"]["name"], "arguments": ""}
                    assert news["index"] == len(known)
                    known[news["index"]] = {"name": news["function"]["name"], "arguments": ""}
                    ids.append(news["id"])
                else:
                    assert set(news) == {"index", "function"} and set(news["function"]) == {"arguments"}
                    known[news["index"]]["arguments"] += news["function"]["arguments"]
            if choice["finish_reason"]:
                assert index not in reasons
                reasons[index] = choice["finish_reason"]
    assert not (calls and has_blank) or fields.get("logprobs")
    assert len(set(ids)) == len(ids) and all(each.startswith("call_") for each in ids)
    return [
        (
            texts[index] or (None if calls.get(index) else ""),
            reasons[index],
            [(call["name"], call["arguments"]) for call in calls.get(index, {}).values()],
        )
        for index in sorted(reasons)
    ]


def both(server: AppServer, **fields: Any) -> list[tuple[str | None, str, Calls]]:
    result = whole(server, **fields)
    assert streamed(server, **fields) == result
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9999])
@pytest.mark.parametrize("tokens_per_step", [1, 7])
def test_api_038_json_calls_over_http(hermes_server: AppServer, size: int, tokens_per_step: int) -> None:
    arguments = {"a": 1, "o": {"k": [1, {"z": True}]}, "e": {}}
    hermes_server.say(pieces_of("I look.\n\n" + hermes_text("a", arguments), size), tokens_per_step)
    text, reason, calls = both(hermes_server, tools=TOOLS)[0]
    assert (text, reason) == ("I look.", "tool_calls")
    assert [(name, json.loads(sent)) for name, sent in calls] == [("a", arguments)]


def test_api_042_schema_types_are_kept(server: AppServer) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "b": {"type": ["boolean", "null"]},
            "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "z": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "s": {"type": "string"},
            "o": {"$ref": "#/$defs/O"},
            "i": {"type": "integer"},
        },
        "$defs": {"O": {"type": "object"}},
    }
    written = {"b": False, "n": 5, "z": None, "s": "123", "o": {"k": [1, 2]}, "i": "abc", "extra": 7}
    server.say(pieces_of(CLOSE + "\n\n" + xml_text("f", written), 4))
    _, reason, calls = both(server, tools=[tool("f", parameters)])[0]
    assert [(name, json.loads(sent)) for name, sent in calls] == [("f", {**written, "extra": "7"})]
    assert reason == "tool_calls"


@pytest.mark.parametrize("num_calls", [2, 3])
@pytest.mark.parametrize("tokens_per_step", [1, 50])
def test_api_046_parallel_calls_have_their_own_index_and_id(
    hermes_server: AppServer, num_calls: int, tokens_per_step: int
) -> None:
    names = ["a", "b", "c"][:num_calls]
    output = "\n".join(hermes_text(name, {"x": i}) for i, name in enumerate(names))
    hermes_server.say(pieces_of(output, 5), tokens_per_step)
    expected = [(name, f'{{"x": {i}}}') for i, name in enumerate(names)]
    assert both(hermes_server, tools=TOOLS, n=2) == [(None, "tool_calls", expected)] * 2
    alone = both(hermes_server, tools=TOOLS, n=2, parallel_tool_calls=False)
    assert alone == [(None, "tool_calls", expected[:1])] * 2
    hermes_server.wait_until_idle()


@pytest.mark.parametrize("choice", [None, "auto", "none"])
@pytest.mark.parametrize("is_enough", [True, False])
def test_api_048_finish_reasons(server: AppServer, choice: str | None, is_enough: bool) -> None:
    output = xml_text("a", {"city": "Oslo"})
    server.say(pieces_of(CLOSE + output, 5))
    limit = {} if is_enough else {"max_tokens": 16}
    text, reason, calls = both(server, tools=TOOLS, tool_choice=choice, **limit)[0]
    if choice == "none":
        assert calls == [] and text and output.startswith(text)
        assert reason == ("stop" if is_enough else "length")
    elif is_enough:
        assert (text, reason, calls) == (None, "tool_calls", [("a", '{"city": "Oslo"}')])
    else:
        assert (text, reason) == (None, "length")
        assert '{"city": "Oslo"}'.startswith(calls[0][1]) and calls[0][1]


@pytest.mark.parametrize("max_tokens", range(1, 7))
def test_api_067_a_call_cut_by_the_limit(
    server: AppServer, hermes_server: AppServer, max_tokens: int
) -> None:
    json_call = [
        "<tool_call>",
        '\n{"name": "a"',
        ', "arguments": {"s": "long',
        " text",
        '"}}',
        "\n",
        "</tool_call>",
    ]
    xml_call = [
        "<tool_call>",
        "\n<function=a>\n",
        "<parameter=s>\nlong",
        " text",
        "\n</parameter>\n",
        "</function>",
    ]
    no_thinking = {"chat_template_kwargs": {"enable_thinking": False}}
    for running, pieces in ((hermes_server, json_call), (server, [*xml_call, "\n", "</tool_call>"])):
        running.say(pieces)
        text, reason, calls = both(running, tools=TOOLS, max_tokens=max_tokens, **no_thinking)[0]
        assert reason == "length"
        assert (text is None) == bool(calls)
        for _, sent in calls:
            assert '{"s": "long text"}'.startswith(sent)
        if not calls:
            assert text == "".join(pieces[:max_tokens])


def test_without_tools_calls_are_text(server: AppServer) -> None:
    output = xml_text("a", {})
    server.say(pieces_of(CLOSE + output, 9999))
    assert both(server) == [(output, "stop", [])]


def test_unknown_functions_are_passed_on(server: AppServer) -> None:
    server.say(pieces_of(CLOSE + xml_text("unheard_of", {"x": 1}), 9999))
    assert both(server, tools=TOOLS) == [(None, "tool_calls", [("unheard_of", '{"x": "1"}')])]


def test_stop_strings_leave_calls_alone(server: AppServer) -> None:
    server.say(pieces_of(CLOSE + "See.\n\n" + xml_text("a", {"s": "x STOP y"}) + "\nThen STOP", 3))
    choices = both(server, tools=TOOLS, stop=["STOP"])
    assert choices == [("See.\n\nThen", "tool_calls", [("a", '{"s": "x STOP y"}')])]


@pytest.mark.parametrize("output", ["Hi.", "Hi. \n", "<tool_call>\noops", "a < b\n\n"])
def test_offering_tools_changes_nothing_about_text(server: AppServer, output: str) -> None:
    server.say(pieces_of(CLOSE + output, 2))
    assert ask(server, tools=TOOLS)["choices"] == ask(server)["choices"]
    assert (
        ask(server, tools=TOOLS, stop=["b"], logprobs=True)["choices"]
        == ask(server, stop=["b"], logprobs=True)["choices"]
    )


def test_every_token_has_its_logprob(server: AppServer) -> None:
    server.say(pieces_of("why" + CLOSE + "\n\nSo:\n\n" + xml_text("a", {"s": "é"}) + "\n", 2))
    body = ask(server, tools=TOOLS, logprobs=True)
    logprobs = body["choices"][0]["logprobs"]
    assert len(logprobs["content"]) + len(logprobs["reasoning"]) == body["usage"]["completion_tokens"]
    assert bytes(b for token in logprobs["content"] for b in token["bytes"]) == b"So:"
    assert streamed(server, tools=TOOLS, logprobs=True) == whole(server, tools=TOOLS, logprobs=True)


@pytest.mark.parametrize(
    "options",
    [ServerOptions(tool_call_parser="none"), ServerOptions(enable_auto_tool_choice=False)],
    ids=["none", "off"],
)
def test_calls_can_be_left_in_the_text(options: ServerOptions) -> None:
    output = xml_text("a", {"s": "1"})
    with serving(options) as server:
        server.say(pieces_of(CLOSE + output, 9999))
        assert both(server, tools=TOOLS) == [(output, "stop", [])]


def test_the_parser_can_be_named() -> None:
    with serving(ServerOptions(tool_call_parser="hermes", enable_auto_tool_choice=True)) as server:
        server.say(pieces_of(CLOSE + hermes_text("a", {"s": 1}), 9999))
        assert both(server, tools=TOOLS) == [(None, "tool_calls", [("a", '{"s": 1}')])]


def test_the_official_client_gathers_the_same_calls_from_a_stream(server: AppServer) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    strict = {**tool("a", {**parameters, "additionalProperties": False})}
    strict["function"]["strict"] = True
    calls = [xml_text("a", {"city": "Oslo"}), xml_text("a", {"city": "Zürich"})]
    server.say(pieces_of("why" + CLOSE + "\n\nLooking.\n\n" + "\n".join(calls), 3))
    request: Any = {"model": "scripted", "messages": GO, "tools": [strict]}
    with server.client() as client:
        one = client.chat.completions.create(**request).choices[0]
        with client.chat.completions.stream(**request) as stream:
            other = stream.get_final_completion().choices[0]
    assert one.finish_reason == other.finish_reason == "tool_calls"
    assert one.message.content == other.message.content == "Looking."
    for message in (one.message, other.message):
        functions: list[Any] = [call.function for call in message.tool_calls or [] if call.type == "function"]
        assert [json.loads(function.arguments) for function in functions] == [
            {"city": "Oslo"},
            {"city": "Zürich"},
        ]
        assert [function.name for function in functions] == ["a", "a"]


def test_api_060_the_reply_can_be_sent_back_as_it_came(server: AppServer) -> None:
    server.say(pieces_of(CLOSE + xml_text("a", {"city": "Oslo"}), 3))
    message = ask(server, tools=TOOLS)["choices"][0]["message"]
    answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "cold"}
    server.say([CLOSE, "It is cold."])
    assert both(server, messages=[*GO, message, answer], tools=TOOLS) == [("It is cold.", "stop", [])]
