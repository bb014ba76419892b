"""Answers held to a form over HTTP, by a model that would rather say something else; names carry the trial cases."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from qanat.config.engine_config import ServerOptions
from tests.server.test_errors import COMPLETIONS, refuse, still_serves, streaming
from tests.server.test_resume import check_every_cut, joined
from tests.support.answers import streamed_chat, whole_chat
from tests.support.app_server import AppServer, serving
from tests.support.scripted_engine import Piece

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "11 + 3*2 as JSON"}]
OPEN, CLOSE = "<think>", "</think>"
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "r", "strict": True, "schema": SCHEMA}}
TALK: list[Piece] = ["Sure", ", here it is: ", '{"answer"', ": ", '"17', '"}', " Anything else?"]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def ask(server: AppServer, **fields: Any) -> dict[str, Any]:
    response = server.post(CHAT, {"messages": HI, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def both(server: AppServer, **fields: Any) -> Any:
    """The first choice of a whole answer, after checking that the streamed one is the same."""
    whole = whole_chat(ask(server, **fields))
    assert streamed_chat(server.stream(CHAT, {"messages": HI, **fields})) == whole
    return whole[0]


@pytest.mark.parametrize("thinking", [True, False, None])
@pytest.mark.parametrize("is_open", [True, False], ids=["qwen3_5", "qwen3"])
@pytest.mark.parametrize("tokens_per_step", [1, 4])
def test_api_053_the_form_begins_after_the_thinking(
    server: AppServer, qwen3_server: AppServer, thinking: bool | None, is_open: bool, tokens_per_step: int
) -> None:
    running = server if is_open else qwen3_server
    thoughts: list[Piece] = (
        [] if thinking is False else [*([] if is_open else [OPEN]), "\n", "{11", " + 6\n", CLOSE]
    )
    running.say([*thoughts, "\n\n", *TALK], tokens_per_step)
    kwargs = {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}
    answer = both(running, response_format=AS_SCHEMA, **kwargs)
    jsonschema.validate(json.loads(answer.text), SCHEMA)
    assert answer.text == '{"answer": "17"}'
    assert answer.reasoning == ("" if thinking is False else "{11 + 6")
    assert answer.finish_reason == "stop"


def test_api_053_a_model_that_may_think_and_does_not(qwen3_server: AppServer) -> None:
    qwen3_server.say(TALK)
    assert both(qwen3_server, response_format=AS_SCHEMA).text == '{"answer": "17"}'


def test_api_053_without_a_reasoning_parser_the_content_has_the_form() -> None:
    with serving(ServerOptions(reasoning_parser="none")) as server:
        server.say(["why", CLOSE, *TALK])
        assert both(server, response_format=AS_SCHEMA).text == '{"answer": "17"}'


@pytest.mark.parametrize(
    ("fields", "pieces", "expected"),
    [
        ({"response_format": {"type": "json_object"}}, ["[1]", '{"a"', ": [1]", "}", "}"], '{"a": [1]}'),
        ({"guided_json": SCHEMA}, TALK, '{"answer": "17"}'),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, TALK, '{"answer": "17"}'),
        ({"structured_outputs": {"regex": "[0-9]{3}"}}, ["x", "12", "ab", "3", "4"], "123"),
        ({"guided_regex": "a+b"}, ["b", "aa", "c", "b", "b"], "aab"),
        ({"guided_choice": ["yes", "no"]}, ["maybe", "no", "t"], "no"),
        ({"guided_grammar": 'start: "x" ("," "x")*'}, ["y", "x", "x", ",", "x"], "x,x"),
        ({"structured_outputs": {"json_object": True, "disable_any_whitespace": True}},
         ['{"a"', ":", " ", "1", "\n", "}"], '{"a":1}'),
    ],
    ids=str,
)  # fmt: skip
def test_every_form_holds_on_both_endpoints(
    server: AppServer, fields: dict[str, Any], pieces: list[Piece], expected: str
) -> None:
    server.say(pieces)
    assert both(server, **fields, **OFF).text == expected
    body = {"prompt": "x", "max_tokens": 50, **fields}
    choice = server.post(COMPLETIONS, body).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (expected, "stop")
    chunks = server.stream(COMPLETIONS, body)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected


@pytest.mark.parametrize("n", [1, 3])
def test_every_choice_has_the_form(server: AppServer, n: int) -> None:
    server.say(["why", CLOSE, *TALK])
    answers = whole_chat(ask(server, response_format=AS_SCHEMA, n=n, temperature=1, seed=3))
    assert [answer.text for answer in answers] == ['{"answer": "17"}'] * n


@pytest.mark.parametrize("response_format", [{"type": "json_object"}, AS_SCHEMA], ids=["object", "schema"])
@pytest.mark.parametrize("blank", [" ", "\n", "\t", "   \n  "])
def test_api_058_blanks_have_an_end(server: AppServer, response_format: Any, blank: str) -> None:
    blanks: list[Piece] = ["\n" if blank == "\t" else blank, *[blank] * 300]
    server.say([*blanks, "{", *blanks, '"answer"', *blanks, ":", *blanks, '"x"', *blanks, "}", *blanks])
    answer = both(server, response_format=response_format, max_tokens=400, **OFF)
    assert answer.finish_reason == "stop"
    assert answer.text.endswith("}")
    assert not re.search(r"\s{33}", answer.text)
    assert json.loads(answer.text)["answer"]


WRONG_SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"foo": "bar"}},
    {"type": "string", "pattern": "("},
    {"$ref": "#/$defs/nowhere"},
    {"type": "objct"},
    {"enum": []},
    {"type": "array", "minItems": 3, "maxItems": 1},
    {"$defs": {"n": {"$ref": "#/$defs/n"}}, "$ref": "#/$defs/n"},
    {"type": "string", "pattern": "(?<=a)b"},
]


@pytest.mark.parametrize("fields", [{}, {"response_format": AS_SCHEMA}], ids=["alone", "beside a form"])
def test_api_056_a_faulty_strict_function_is_named_and_the_tools_are_blamed(
    server: AppServer, fields: dict[str, Any]
) -> None:
    good = {"name": "good", "strict": True, "parameters": {"type": "object", "properties": {}}}
    faulty = {
        **good,
        "name": "faulty",
        "parameters": {"properties": {"a": {"type": "string", "pattern": "("}}},
    }
    tools = [{"type": "function", "function": one} for one in (good, faulty)]
    error = refuse(server.post(CHAT, {"messages": HI, "tools": tools, **fields}), param="tools")
    assert "'faulty'" in error["message"] and "'good'" not in error["message"]


@pytest.mark.parametrize("schema", WRONG_SCHEMAS, ids=str)
def test_api_056_a_wrong_schema_is_refused_and_nothing_else_is_touched(
    server: AppServer, schema: Any
) -> None:
    server.say(["a"] * 400)
    with streaming(server, {"prompt": "x", "max_tokens": 300}) as lines:
        next(lines)
        form = {"type": "json_schema", "json_schema": {"name": "r", "schema": schema}}
        for is_stream in (True, False):
            error = refuse(
                server.post(CHAT, {"messages": HI, "response_format": form, "stream": is_stream}),
                param="response_format",
            )
            assert error["code"] == "invalid_structured_output"
        refuse(server.post(CHAT, {"messages": HI, "guided_json": schema}), param="guided_json")
        assert list(lines)[-1] == "data: [DONE]"
    assert server.http.get("/health").status_code == 200
    still_serves(server)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"guided_regex": "a(?<=b)"}, "guided_regex"),
        ({"guided_grammar": "start: ("}, "guided_grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"structural_tag": {"type": "structural_tag"}}, "structural_tag"),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos"),
    ],
    ids=str,
)
def test_api_056_wrong_forms_are_refused_by_name(
    server: AppServer, fields: dict[str, Any], param: str
) -> None:
    refuse(server.post(CHAT, {"messages": HI, **fields}), param=param)
    refuse(server.post(COMPLETIONS, {"prompt": "x", **fields}), param=param)
    still_serves(server)


def test_output_that_breaks_the_form_cannot_be_resumed() -> None:
    with serving(ServerOptions(allow_resume=True)) as server:
        server.say(TALK)
        body = {"messages": HI, "seed": 1, "response_format": AS_SCHEMA, **OFF}
        resume = {"output_token_ids": [list(b"Sure")]}
        refuse(server.post(CHAT, {**body, "resume": resume}), param="response_format")
        still_serves(server)


def test_a_message_goes_on_with_a_form_for_what_is_new(server: AppServer) -> None:
    server.say(["no", "}", "}"])
    messages = [*HI, {"role": "assistant", "content": '{"answer": "17"'}]
    answer = both(server, messages=messages, continue_final_message=True, guided_regex=" ?}")
    assert (answer.text, answer.finish_reason) == ("}", "stop")


def test_an_answer_with_a_form_goes_on_after_every_token() -> None:
    with serving(ServerOptions(allow_resume=True)) as server:
        server.say(["why", " not", CLOSE, "\n\n", *TALK])
        body = {"messages": HI, "response_format": AS_SCHEMA}
        assert check_every_cut(server, CHAT, body) > 5
        assert json.loads(joined(server.stream(CHAT, body))[0]["text"]) == {"answer": "17"}
        server.say(['{"answer"', ": ", '"17', '"', "}"])
        assert check_every_cut(server, COMPLETIONS, {"prompt": "x", "n": 2, "guided_json": SCHEMA}) > 3
